"""Who we are to a registry: the files of podman and docker, and their credential helpers.

Owns the order of the files (podman's own, docker's after) and within a file: a helper for this registry, an entry for
the longest matching path, the store for everything. A password is never part of a message.
"""

import base64
import binascii
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pointsman.bundle.sources.references import ImageReference
from pointsman.core.errors import UserError

_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HELPER_SECONDS = 30
_HUB_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password, or a token that is exchanged for one, or one that is used as it is; or nobody."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)


NOBODY = Credentials()


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""
    registrytoken: str = ""


class _AuthFile(msgspec.Struct, frozen=True, rename="camel"):
    auths: dict[str, _Entry] | None = None
    cred_helpers: dict[str, str] | None = None
    creds_store: str | None = None


class _Answer(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


Ask = Callable[[str, str], bytes | None]


def auth_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where credentials may be, in order; a file that is named and absent is a mistake and left to the reader."""
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
        return
    home = Path(environment.get("HOME", "/nonexistent"))
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def find_credentials(
    reference: ImageReference, *, environment: Mapping[str, str], ask: Ask | None = None
) -> Credentials:
    """Return what the first file knows about this image; nobody when none does.

    Raises UserError for a file that cannot be read and for a helper that fails.
    """
    for path in auth_files(environment):
        if path.is_file():
            found = _from_file(path, reference, ask=ask or ask_helper)
            if found is not None:
                return found
        elif environment.get("REGISTRY_AUTH_FILE"):
            raise UserError(f"REGISTRY_AUTH_FILE={path}: there is no such file")
    return NOBODY


def ask_helper(helper: str, server: str) -> bytes | None:
    """Return what a credential helper answers; nothing when it knows nothing of the server."""
    try:
        run = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=server.encode(),
            capture_output=True,
            timeout=_HELPER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"credential helper docker-credential-{helper} did not answer: {type(error).__name__}"
        ) from None
    if run.returncode == 0:
        return run.stdout
    if b"credentials not found" in run.stdout + run.stderr:
        return None
    raise UserError(f"credential helper docker-credential-{helper} failed with exit code {run.returncode}")


def _from_file(path: Path, reference: ImageReference, *, ask: Ask) -> Credentials | None:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_AuthFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as credentials: {error}") from None
    server = _HUB_KEY if reference.registry == "docker.io" else reference.registry
    if helper := (file.cred_helpers or {}).get(reference.registry):
        return _from_helper(helper, server, path=path, ask=ask)
    for key in _keys(reference):
        entry = (file.auths or {}).get(key)
        if entry is not None and (found := _from_entry(entry, path=path, key=key)) is not None:
            return found
    return _from_helper(file.creds_store, server, path=path, ask=ask) if file.creds_store else None


def _keys(reference: ImageReference) -> Iterator[str]:
    """Yield the names under which an image may stand in a file, longest path first."""
    parts = reference.repository.split("/")
    for length in range(len(parts), 0, -1):
        yield f"{reference.registry}/{'/'.join(parts[:length])}"
    host = reference.registry
    yield from (
        host,
        f"https://{host}",
        f"https://{host}/",
        f"http://{host}",
        f"https://{host}/v1/",
        f"https://{host}/v2/",
    )
    if host == "docker.io":
        yield from (_HUB_KEY, "index.docker.io")


def _from_entry(entry: _Entry, *, path: Path, key: str) -> Credentials | None:
    username, password = entry.username, entry.password
    if entry.auth:
        try:
            username, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise UserError(f"{path}: auths[{key!r}].auth is not base64 of user:password") from None
    found = Credentials(username, password.rstrip("\0"), entry.identitytoken, entry.registrytoken)
    return found if found != NOBODY else None


def _from_helper(helper: str, server: str, *, path: Path, ask: Ask) -> Credentials | None:
    if not _HELPER.fullmatch(helper):
        raise UserError(f"{path}: {helper!r} is no credential helper's name")
    text = ask(helper, server)
    if text is None:
        return None
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise UserError(f"credential helper docker-credential-{helper} answered what is not JSON") from None
    if answer.username == "<token>":
        return Credentials(identity_token=answer.secret)
    return Credentials(answer.username, answer.secret)

"""Images in a registry: the read side of the OCI distribution protocol.

Owns authorization as registries ask for it (basic, or a token from the place that they name), redirects, and what is
believed: a manifest asked for by digest is checked, every blob is. Credentials go to the registry and to its token
service, over TLS unless `insecure` allows plain HTTP, and never to where a blob is redirected.
"""

import base64
import hashlib
import re
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from urllib.parse import urljoin

import httpx2
import msgspec

from pointsman.bundle.sources.credentials import NOBODY, Credentials
from pointsman.bundle.sources.images import MAX_MANIFEST, read_image
from pointsman.bundle.sources.limits import ImageLimits
from pointsman.bundle.sources.references import ImageReference
from pointsman.core.errors import Unavailable, UserError

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution.manifest"
_ACCEPT = f"{_OCI}.manifest.v1+json, {_OCI}.index.v1+json, {_DOCKER}.v2+json, {_DOCKER}.list.v2+json"
_CHALLENGE = re.compile(r'([a-z]+)="([^"]*)"')
_HOSTS = {"docker.io": "registry-1.docker.io"}
_CERTS_D = (Path("/etc/containers/certs.d"), Path("/etc/docker/certs.d"))
_REDIRECTS = 5
_SECONDS = 60
_TOKEN_BYTES = 1024 * 1024


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


@dataclass(frozen=True)
class Access:
    """How a registry is reached."""

    credentials: Credentials = NOBODY
    insecure: bool = False
    authority: Path | None = None
    patience: float = 600.0
    """Seconds that one manifest or blob may take, however slowly it comes."""


@contextmanager
def pulling(reference: ImageReference, access: Access) -> Iterator["Pull"]:
    """Open the connection to an image's registry."""
    host = _HOSTS.get(reference.registry, reference.registry)
    with httpx2.Client(verify=_trust(reference, access), timeout=_SECONDS, follow_redirects=False) as client:
        yield Pull(reference, access, client, base=f"https://{host}")


class Pull:
    """One image of one registry, and the authorization that it takes."""

    def __init__(self, reference: ImageReference, access: Access, client: httpx2.Client, *, base: str) -> None:
        self.name = str(reference)
        self._reference = reference
        self._access = access
        self._client = client
        self._base = base
        self._authorization = ""

    def read(self, *, wanted: tuple[str, ...], limits: ImageLimits) -> tuple[dict[str, bytes], str]:
        """Return the wanted files of the image, and the digest of its manifest."""
        manifest = self.manifest()
        return read_image(self, manifest, wanted=wanted, limits=limits), self._reference.digest or _sha256(manifest)

    def manifest(self) -> bytes:
        """Return the manifest; raises UserError when it is not what its digest says."""
        with self._get(f"manifests/{self._reference.version}", limit=MAX_MANIFEST) as stream:
            text = stream.read()
        algorithm, _, wanted = self._reference.digest.partition(":")
        if wanted and hashlib.new(algorithm, text).hexdigest() != wanted:
            raise UserError(f"{self.name}: the registry sent a manifest with another digest")
        return text

    def digest(self) -> str:
        """Return the digest of the manifest that the tag names now."""
        return self._reference.digest or _sha256(self.manifest())

    def blob(self, digest: str, *, limit: int, noun: str = "blobs") -> IO[bytes]:
        """Return a blob or, from an index, a manifest."""
        return self._get(f"{noun}/{digest}", limit=limit)

    def _get(self, path: str, *, limit: int) -> IO[bytes]:
        url = f"{self._base}/v2/{self._reference.repository}/{path}"
        try:
            return self._follow(url, limit=limit)
        except httpx2.ConnectError as error:
            if not self._access.insecure or not self._base.startswith("https:"):
                raise self._unavailable(error) from None
            self._base = "http:" + self._base.removeprefix("https:")
            return self._get(path, limit=limit)
        except httpx2.HTTPError as error:
            raise self._unavailable(error) from None

    def _follow(self, url: str, *, limit: int) -> IO[bytes]:
        asked, own = False, url
        for _ in range(_REDIRECTS):
            headers = {"Accept": _ACCEPT}
            if self._authorization and _origin(url) == _origin(own):
                headers["Authorization"] = self._authorization
            with self._client.stream("GET", url, headers=headers) as answer:
                if answer.status_code == 401 and not asked:
                    asked = True
                    self._authorize(answer.headers.get("www-authenticate", ""))
                    continue
                if answer.has_redirect_location:
                    url = self._redirected(url, answer.headers["location"])
                    continue
                return self._body(answer, limit=limit)
        raise UserError(f"{self.name}: the registry redirects more than {_REDIRECTS} times")

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if not target.startswith("https:") and not self._access.insecure:
            raise UserError(f"{self.name}: the registry redirects away from TLS: allow that with --registry-insecure")
        return target

    def _body(self, answer: httpx2.Response, *, limit: int) -> IO[bytes]:
        if answer.status_code in {401, 403}:
            raise UserError(f"{self.name}: the registry does not let us: log in with `podman login` or `docker login`")
        if answer.status_code == 404:
            raise UserError(f"{self.name}: there is no such image (or it is not for us)")
        if answer.status_code != 200:
            raise Unavailable(f"{self.name}: the registry answered {answer.status_code}")
        target = tempfile.SpooledTemporaryFile(max_size=8 * 1024 * 1024)  # noqa: SIM115 - whoever asked reads it
        size, late = 0, time.monotonic() + self._access.patience
        for chunk in answer.iter_bytes():
            if time.monotonic() > late:
                raise Unavailable(f"{self.name}: the registry did not send it within {self._access.patience:g} s")
            size += len(chunk)
            if size > limit:
                raise UserError(f"{self.name}: a blob is larger than {limit} bytes")
            target.write(chunk)
        target.seek(0)
        return cast("IO[bytes]", target)

    def _authorize(self, challenge: str) -> None:
        """Do what the registry asks for; without credentials a token may still be had."""
        scheme, _, rest = challenge.partition(" ")
        who = self._access.credentials
        if who.registry_token:
            self._authorization = f"Bearer {who.registry_token}"
        elif scheme.lower() == "basic" and who.username:
            pair = base64.b64encode(f"{who.username}:{who.password}".encode()).decode()
            self._authorization = f"Basic {pair}"
        elif scheme.lower() == "bearer":
            self._authorization = f"Bearer {self._token(dict(_CHALLENGE.findall(rest)))}"

    def _token(self, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        if not realm.startswith("https:") and not (self._access.insecure and realm.startswith("http:")):
            raise UserError(
                f"{self.name}: the registry's token service {realm!r} has no TLS: allow --registry-insecure"
            )
        scope = challenge.get("scope") or f"repository:{self._reference.repository}:pull"
        fields = {"service": challenge.get("service", ""), "scope": scope}
        who = self._access.credentials
        if who.identity_token:
            form = {
                **fields,
                "grant_type": "refresh_token",
                "client_id": "pointsman",
                "refresh_token": who.identity_token,
            }
            request = self._client.build_request("POST", realm, data=form)
        else:
            request = self._client.build_request("GET", realm, params=fields)
        auth = httpx2.BasicAuth(who.username, who.password) if who.username and not who.identity_token else None
        answer = self._client.send(request, auth=auth, stream=True)
        try:
            if answer.status_code != 200:
                raise UserError(f"{self.name}: its token service answered {answer.status_code}: log in again")
            found = msgspec.json.decode(self._body(answer, limit=_TOKEN_BYTES).read(), type=_Token)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UserError(f"{self.name}: the registry's token service sent no token") from None
        finally:
            answer.close()
        return found.token or found.access_token

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self.name}: the registry cannot be reached: {error or type(error).__name__}")


def _trust(reference: ImageReference, access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    own = [folder / reference.registry / "ca.crt" for folder in _CERTS_D]
    for path in [access.authority] if access.authority else [path for path in own if path.is_file()]:
        try:
            context.load_verify_locations(path)
        except OSError as error:  # ssl.SSLError is one
            raise UserError(f"{path}: cannot be used as a certificate authority: {error}") from None
    return context


def _sha256(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx2.URL(url)
    return parsed.scheme, parsed.host, parsed.port

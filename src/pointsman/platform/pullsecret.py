"""Credentials for the registries that the platform's images come from, as the content of a pull secret.

Owns which are copied: one entry for each registry that an image names (or for each of its images, where the files have
several users for one registry), and no others. Podman's and docker's files,
helpers included, are read as everywhere; what comes out holds passwords, is never printed and has no `repr`.
"""

import base64
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.bundle.sources.credentials import NOBODY, Ask, Credentials, ask_helper, find_credentials
from pointsman.bundle.sources.references import ImageReference, parse_reference
from pointsman.core.errors import UserError


@dataclass(frozen=True)
class DockerConfig:
    """The content of a Secret of type dockerconfigjson, and whom it is for."""

    registries: tuple[str, ...]
    missing: tuple[str, ...] = ()
    """Registries of which nobody has credentials: they may need none."""
    text: str = field(default="", repr=False)


def docker_config(
    images: Iterable[str], *, source: str, environment: Mapping[str, str], ask: Ask | None = None
) -> DockerConfig:
    """Return the credentials for the registries of these images; raises UserError for a source that cannot be read."""
    if source == "none":
        return DockerConfig(())
    where, known = _environment(source, environment), functools.cache(ask or ask_helper)
    entries: dict[str, dict[str, str]] = {}
    missing: list[str] = []
    for registry, references in sorted(_by_registry(images).items()):
        found = {each: find_credentials(each, environment=where, ask=known) for each in references}
        entries |= _entries(registry, found)
        if all(each == NOBODY for each in found.values()):
            missing.append(registry)
    text = json.dumps({"auths": entries}, sort_keys=True) if entries else ""
    return DockerConfig(tuple(dict.fromkeys(each.partition("/")[0] for each in entries)), tuple(missing), text)


def _by_registry(images: Iterable[str]) -> dict[str, list[ImageReference]]:
    """Return the images of each registry; what is no image's name (a placeholder of the bundle) is passed over."""
    found: dict[str, list[ImageReference]] = {}
    for image in dict.fromkeys(images):
        try:
            reference = parse_reference(image)
        except UserError:
            continue
        if "$" not in image:
            found.setdefault(reference.registry, []).append(reference)
    return found


def _entries(registry: str, found: Mapping[ImageReference, Credentials]) -> dict[str, dict[str, str]]:
    """Return one entry for the registry, or one for each image where they are not pulled as one user."""
    users = set(found.values()) - {NOBODY}
    if len(users) == 1:
        return {registry: _entry(users.pop())}
    return {f"{registry}/{reference.repository}": _entry(who) for reference, who in found.items() if who != NOBODY}


def _environment(source: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which only the wanted source is found."""
    kept = {name: value for name, value in environment.items() if name in {"HOME", "PATH"}}
    nowhere = str(Path("/nonexistent"))
    if source == "podman":
        names = ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
        return {**kept, **{name: environment[name] for name in names if name in environment}, "DOCKER_CONFIG": nowhere}
    if source == "docker":
        own = {"DOCKER_CONFIG": environment["DOCKER_CONFIG"]} if "DOCKER_CONFIG" in environment else {}
        return {**kept, **own, "XDG_CONFIG_HOME": nowhere}
    if not Path(source).expanduser().is_file():
        raise UserError(f"pullSecret.from: {source!r} is no file: write podman, docker, none, or a file's path")
    return {**kept, "REGISTRY_AUTH_FILE": str(Path(source).expanduser())}


def _entry(found: Credentials) -> dict[str, str]:
    entry: dict[str, str] = {}
    if found.username:
        entry["auth"] = base64.b64encode(f"{found.username}:{found.password}".encode()).decode()
    if found.identity_token:
        entry["identitytoken"] = found.identity_token
    if found.registry_token:
        entry["registrytoken"] = found.registry_token
    return entry

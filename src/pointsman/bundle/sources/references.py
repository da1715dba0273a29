"""What a source is called: a path, or an image by registry, repository, tag and digest."""

import re
from dataclasses import dataclass

from pointsman.core.errors import UserError

_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?")
_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class ImageReference:
    """An image in a registry."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def version(self) -> str:
        """Return what a registry is asked for: the digest if there is one."""
        return self.digest or self.tag or "latest"


def parse_reference(text: str) -> ImageReference:
    """Return an image's name in its parts; raises UserError naming the part that is wrong."""
    name, at, digest = text.removeprefix("docker://").partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise UserError(f"{text}: {digest!r} is no digest: it must be sha256: with 64 hexadecimal digits")
    head, slash, rest = name.partition("/")
    has_host = bool(slash) and ("." in head or ":" in head or head == "localhost" or head.startswith("["))
    registry, path = (head, rest) if has_host else (_HUB, name)
    repository, _, tag = path.partition(":")
    if registry == _HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.fullmatch(registry):
        raise UserError(f"{text}: {registry!r} is no registry's name")
    if len(repository) > 255 or not _REPOSITORY.fullmatch(repository):
        raise UserError(f"{text}: is no folder or file here, and {repository!r} is no repository's name either")
    if tag and not _TAG.fullmatch(tag):
        raise UserError(f"{text}: {tag!r} is no tag")
    return ImageReference(registry, repository, tag, digest)

"""Layers of an image → the files that we want of them, in memory.

Owns what an archive may hold. Nothing of it ever touches the disk under its own name, so a path cannot escape; what
would escape elsewhere is refused all the same, with the entry's name, because an image that has it is not to be
trusted. Layers are applied first to last with their whiteouts, so a file is what the image shows and not what an older
layer left.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, cast

from pointsman.bundle.sources.limits import ImageLimits
from pointsman.core.errors import UserError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK = 1024 * 1024
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what to call it, and its bytes, compressed or not."""

    name: str
    stream: IO[bytes]


def unpack(layers: Iterable[Layer], *, wanted: tuple[str, ...], limits: ImageLimits) -> dict[str, bytes]:
    """Return the files under the wanted folders, as the topmost layer that has them says.

    Raises UserError, naming layer and entry, for an archive that is broken, too large or hostile.
    """
    files: dict[str, bytes] = {}
    for layer in layers:
        hidden, found = _read_layer(layer, wanted=wanted, limits=limits)
        for path in [each for each in files if any(_is_below(each, one) for one in hidden)]:
            del files[path]
        for path in found:  # a file in the place of a folder hides what was in it
            for old in [each for each in files if each.startswith(f"{path}/")]:
                del files[old]
        files |= found
        if sum(map(len, files.values())) > limits.kept:
            raise UserError(f"{layer.name}: the image keeps more than {limits.kept} bytes under {', '.join(wanted)}")
    return files


def digest_unpacked(layer: Layer, *, limits: ImageLimits) -> str:
    """Return the SHA-256 of what a layer is without compression, and rewind it."""
    hashed = hashlib.sha256()
    try:
        stream = _Bounded(_decompressed(layer), limit=limits.unpacked)
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    except _TooMuch:
        raise UserError(f"{layer.name}: unpacks to more than {limits.unpacked} bytes") from None
    except (zlib.error, EOFError, OSError) as error:
        raise UserError(f"{layer.name}: is broken: {error or type(error).__name__}") from None
    layer.stream.seek(0)
    return hashed.hexdigest()


def _read_layer(layer: Layer, *, wanted: tuple[str, ...], limits: ImageLimits) -> tuple[list[str], dict[str, bytes]]:
    """Return what a layer hides and what it has; whatever the reader of archives stumbles over is one sentence."""
    hidden: list[str] = []
    files: dict[str, bytes] = {}
    kept, last = 0, "its beginning"
    try:
        for archive, member in _members(layer, limits=limits):
            last = member.name
            path = _checked_path(member, layer=layer)
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                hidden.append(folder)
            elif name.startswith(_WHITEOUT):
                hidden.append(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
            elif path.startswith(wanted) and not member.isdir():
                files[path] = _content(archive, member, layer=layer, limits=limits)
                kept += len(files[path])
                if kept > limits.kept:
                    raise UserError(f"{layer.name}: {path}: the layer keeps more than {limits.kept} bytes")
    except _TooMuch:
        raise UserError(f"{layer.name}: unpacks to more than {limits.unpacked} bytes, after {last}") from None
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"{layer.name}: is broken after {last}: {error or type(error).__name__}") from None
    return hidden, files


def _members(layer: Layer, *, limits: ImageLimits) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    stream = _Bounded(_decompressed(layer), limit=limits.unpacked)
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= limits.entries:
                raise UserError(f"{layer.name}: {member.name}: more than {limits.entries} entries")
            yield archive, member
            archive.members = []  # type: ignore[attr-defined] # or every header ever read stays


def _checked_path(member: tarfile.TarInfo, *, layer: Layer) -> str:
    name = member.name.removeprefix("./")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise UserError(f"{layer.name}: {member.name}: leads out of the image")
    if "\0" in name:
        raise UserError(f"{layer.name}: {member.name!r}: has a zero byte in its name")
    return name.rstrip("/")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, *, layer: Layer, limits: ImageLimits) -> bytes:
    if member.issym() or member.islnk():
        raise UserError(f"{layer.name}: {member.name}: is a link to {member.linkname}: a bundle holds files only")
    if not member.isreg() or member.issparse():
        raise UserError(f"{layer.name}: {member.name}: is no plain file")
    if member.size > limits.file:
        raise UserError(f"{layer.name}: {member.name}: has {member.size} bytes, more than {limits.file}")
    source = archive.extractfile(member)
    content = source.read() if source else b""
    if len(content) != member.size:
        raise UserError(f"{layer.name}: {member.name}: ends early")
    return content


def _decompressed(layer: Layer) -> IO[bytes]:
    magic = layer.stream.read(4)
    layer.stream.seek(0)
    if magic.startswith(_GZIP):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=layer.stream, mode="rb"))
    if magic == _ZSTD:
        raise UserError(f"{layer.name}: is compressed with zstd, which is not supported: push it again with gzip")
    return layer.stream


def _is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")


class _TooMuch(Exception):
    """More came out of an archive than it may hold."""


class _Bounded:
    """Reads a stream up to a number of bytes, however far it would go on."""

    def __init__(self, stream: IO[bytes], *, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left + 1:
            size = self._left + 1
        text = self._stream.read(size)
        self._left -= len(text)
        if self._left < 0:
            raise _TooMuch
        return text

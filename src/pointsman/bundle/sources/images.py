"""Images on this machine: an OCI layout, `docker save`, `podman save`, folder or archive.

Owns which manifest of an index is meant and that every blob is what its digest says. `Blobs` is where blobs come from;
a registry is one more of them (`registry`).
"""

import gzip
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeVar, cast

import msgspec

from pointsman.bundle.sources.layers import Layer, digest_unpacked, unpack
from pointsman.bundle.sources.limits import ImageLimits
from pointsman.core.errors import UserError

MAX_MANIFEST = 4 * 1024 * 1024
_MAX_ARCHIVE = 2 * 1024**3
_MAX_ENTRIES = 10_000
_CHUNK = 1024 * 1024
_LINUX = ("linux", "amd64")
T = TypeVar("T")


class Platform(msgspec.Struct, frozen=True):
    """Where an image runs; a bundle runs nowhere and may say anything."""

    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A blob by its digest."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """An image manifest or an index of them: one has layers, the other has manifests."""

    layers: list[Descriptor] | None = None
    manifests: list[Descriptor] | None = None


class SavedImage(msgspec.Struct, frozen=True, rename="pascal"):
    """An image in the `manifest.json` of `docker save`."""

    config: str = ""
    layers: list[str] = []
    repo_tags: list[str] | None = None


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: list[str] = []


class _Config(msgspec.Struct, frozen=True):
    rootfs: _RootFs = _RootFs()


class Blobs(Protocol):
    """A place that has blobs."""

    @property
    def name(self) -> str:
        """Return what to call it."""

    def blob(self, digest: str, *, limit: int, noun: str = "blobs") -> IO[bytes]:
        """Return a blob (or, as `manifests`, a manifest), not yet checked.

        Raises UserError when it is not there or larger than the limit.
        """


def read_image(blobs: Blobs, manifest: bytes, *, wanted: tuple[str, ...], limits: ImageLimits) -> dict[str, bytes]:
    """Return the wanted files of the image with this manifest, or of the one that an index offers."""
    found = decoded(manifest, Manifest, name=blobs.name)
    if found.manifests is not None:
        chosen = choose(found.manifests, name=blobs.name)
        manifest = checked(blobs, chosen, limit=MAX_MANIFEST, noun="manifests").read()
        found = decoded(manifest, Manifest, name=f"{blobs.name}: {chosen.digest}")
    if found.layers is None:
        raise UserError(f"{blobs.name}: is no image: its manifest has no layers")
    layers = (
        Layer(f"{blobs.name}: {each.digest}", checked(blobs, each, limit=limits.unpacked)) for each in found.layers
    )
    return unpack(layers, wanted=wanted, limits=limits)


def choose(manifests: Sequence[Descriptor], *, name: str, tag: str = "") -> Descriptor:
    """Return the manifest that a tag names, or the one for this kind of machine, or the only one, or the first."""
    if tag:
        key = "org.opencontainers.image.ref.name"
        tags = {(each.annotations or {}).get(key, ""): each for each in manifests}
        if tag not in tags:
            known = ", ".join(sorted(filter(None, tags))) or "none"
            raise UserError(f"{name}: has no image {tag!r}: there is {known}")
        return tags[tag]
    fitting = [each for each in manifests if each.platform and (each.platform.os, each.platform.architecture) == _LINUX]
    if not manifests:
        raise UserError(f"{name}: its index is empty")
    return (fitting or manifests)[0]


def checked(blobs: Blobs, descriptor: Descriptor, *, limit: int, noun: str = "blobs") -> IO[bytes]:
    """Return a blob that is what its digest says, ready to be read."""
    algorithm, _, wanted = descriptor.digest.partition(":")
    if algorithm not in {"sha256", "sha512"} or not wanted.isalnum():
        raise UserError(f"{blobs.name}: {descriptor.digest!r} is no digest: it must begin with sha256: or sha512:")
    stream = blobs.blob(descriptor.digest, limit=limit, noun=noun)
    if digest_of(stream, algorithm) != wanted:
        raise UserError(f"{blobs.name}: {descriptor.digest}: its content has another digest")
    return stream


def digest_of(stream: IO[bytes], algorithm: str) -> str:
    """Return the digest of what is in a stream, and rewind it."""
    hashed = hashlib.file_digest(cast("io.BufferedReader", stream), algorithm).hexdigest()
    stream.seek(0)
    return hashed


def decoded(text: bytes, kind: type[T], *, name: str) -> T:
    """Return JSON as a typed value; raises UserError with the path of what is wrong."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: {error}") from None


@dataclass(frozen=True)
class _Folder:
    """Files below a folder."""

    name: str
    root: Path

    def open(self, path: str) -> IO[bytes] | None:
        """Return a file, or nothing when there is none."""
        target = self.root / path
        if not target.is_file():
            return None
        if not target.resolve().is_relative_to(self.root.resolve()):
            raise UserError(f"{self.name}: {path}: is a link that leads out of the image")
        return target.open("rb")


@dataclass(frozen=True)
class _Archive:
    """Files in a tar archive."""

    name: str
    archive: tarfile.TarFile
    members: dict[str, tarfile.TarInfo]

    def open(self, path: str) -> IO[bytes] | None:
        """Return a file, or nothing when there is none."""
        member = self.members.get(path)
        if member is None:
            return None
        if not member.isreg() or member.issparse():
            raise UserError(f"{self.name}: {path}: is no plain file")
        return cast("IO[bytes]", self.archive.extractfile(member))


@dataclass(frozen=True)
class LocalImage:
    """An image in a folder or archive, by the layout that it has."""

    name: str
    files: _Folder | _Archive

    def blob(self, digest: str, *, limit: int, noun: str = "blobs") -> IO[bytes]:  # noqa: ARG002 - the interface
        """Return a blob by its digest; manifests are among them."""
        return self._open("blobs/" + digest.replace(":", "/"), limit=limit)

    def read(self, *, tag: str, wanted: tuple[str, ...], limits: ImageLimits) -> dict[str, bytes]:
        """Return the wanted files."""
        saved = self.files.open("manifest.json")
        if saved is not None:
            return self._read_saved(saved.read(MAX_MANIFEST), tag=tag, wanted=wanted, limits=limits)
        index = decoded(self._open("index.json", limit=MAX_MANIFEST).read(), Manifest, name=f"{self.name}: index.json")
        chosen = choose(index.manifests or [], name=self.name, tag=tag)
        return read_image(self, checked(self, chosen, limit=MAX_MANIFEST).read(), wanted=wanted, limits=limits)

    def _read_saved(self, text: bytes, *, tag: str, wanted: tuple[str, ...], limits: ImageLimits) -> dict[str, bytes]:
        images = decoded(text, list[SavedImage], name=f"{self.name}: manifest.json")
        fitting = [each for each in images if not tag or tag in (each.repo_tags or [])]
        if len(fitting) != 1:
            known = ", ".join(tag for each in images for tag in each.repo_tags or []) or "none with a name"
            raise UserError(f"{self.name}: say which image is meant, as {self.name}:NAME: there is {known}")
        (image,) = fitting
        config = decoded(
            self._open(image.config, limit=MAX_MANIFEST).read(), _Config, name=f"{self.name}: {image.config}"
        )
        if len(config.rootfs.diff_ids) != len(image.layers):
            raise UserError(f"{self.name}: {image.config}: names another number of layers than manifest.json")
        pairs = zip(image.layers, config.rootfs.diff_ids, strict=True)
        return unpack((self._layer(path, diff, limits=limits) for path, diff in pairs), wanted=wanted, limits=limits)

    def _layer(self, path: str, diff_id: str, *, limits: ImageLimits) -> Layer:
        layer = Layer(f"{self.name}: {path}", self._open(path, limit=limits.unpacked))
        # `diff_id` is the digest of what is not compressed, whether or not the one who saved it has.
        if f"sha256:{digest_unpacked(layer, limits=limits)}" != diff_id:
            raise UserError(f"{layer.name}: its content has another digest than {diff_id}")
        return layer

    def _open(self, path: str, *, limit: int) -> IO[bytes]:
        if path.startswith("/") or ".." in path.split("/"):
            raise UserError(f"{self.name}: {path}: leads out of the image")
        stream = self.files.open(path)
        if stream is None:
            raise UserError(f"{self.name}: {path} is missing: it is neither an OCI layout nor a saved image")
        if stream.seek(0, io.SEEK_END) > limit:
            raise UserError(f"{self.name}: {path}: is larger than {limit} bytes")
        stream.seek(0)
        return stream


@contextmanager
def local_image(path: Path) -> Iterator[LocalImage]:
    """Open the image in a folder or an archive; raises UserError for what is none."""
    if path.is_dir():
        yield LocalImage(str(path), _Folder(str(path), path))
        return
    with tempfile.TemporaryFile() as plain:
        try:
            source = _uncompressed(path, plain)
            with tarfile.open(fileobj=source, mode="r:") as archive:
                members = {member.name.removeprefix("./"): member for member in _bounded(archive, path)}
                yield LocalImage(str(path), _Archive(str(path), archive, members))
        except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: cannot be read as an image: {error or type(error).__name__}") from None


def _uncompressed(path: Path, plain: IO[bytes]) -> IO[bytes]:
    """Return the archive as one that can be read anywhere in it: `docker save | gzip` goes through a file first."""
    source = path.open("rb")
    compressed = source.read(2) == b"\x1f\x8b"
    source.seek(0)
    if not compressed:
        return source
    left = _MAX_ARCHIVE
    with gzip.GzipFile(fileobj=source, mode="rb") as unzipped:
        while chunk := unzipped.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise UserError(f"{path}: unpacks to more than {_MAX_ARCHIVE} bytes")
            plain.write(chunk)
    plain.seek(0)
    return plain


def _bounded(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    for count, member in enumerate(archive):
        if count >= _MAX_ENTRIES:
            raise UserError(f"{path}: {member.name}: more than {_MAX_ENTRIES} entries")
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise UserError(f"{path}: {member.name}: leads out of the image")
        yield member

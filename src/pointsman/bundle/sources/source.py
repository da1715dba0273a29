"""Where bundles come from: a folder, an image in a folder or file, a registry, a catalog. All reading is here.

Owns the meaning of a source's name: a folder or file that exists is that, anything else is an image in a registry.
Podman's prefixes say it outright: `oci:`, `oci-archive:`, `docker-archive:`, `docker://`. An HTTP client takes longer
to import than a bundle takes to render, so what reads images, catalogs and registries is imported when one is named.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle
from pointsman.bundle.sources.limits import BUNDLE_LIMITS, CATALOG_LIMITS, ImageLimits
from pointsman.core.errors import UserError

if TYPE_CHECKING:
    from pointsman.bundle.sources.registry import Access

_LOCAL = ("oci:", "oci-archive:", "docker-archive:")
_PATHS = ("./", "../", "/", "~")  # no registry's name begins so
_BUNDLE_FOLDERS = ("manifests/", "metadata/")
_CATALOG_FOLDERS = ("configs/",)


@dataclass(frozen=True, slots=True)
class Registries:
    """How registries are reached."""

    insecure: bool = False
    username: str = ""
    password: str = field(default="", repr=False)
    authority: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FromCatalog:
    """Which bundle of a catalog."""

    catalog: str
    channel: str = ""
    installed: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of a bundle; from a registry also the image by its digest."""

    files: Mapping[str, bytes] = field(repr=False)
    name: str
    image: str = ""

    def bundle(self) -> Bundle:
        """Return what the files say."""
        return load_bundle(self.files, name=self.name)

    @property
    def digest(self) -> str:
        """Return the digest of the image; empty when the files do not come from a registry."""
        return self.image.partition("@")[2]

    @property
    def content(self) -> str:
        """Return a digest of the files, the same wherever they come from."""
        lines = (f"{hashlib.sha256(self.files[path]).hexdigest()} {path}\n" for path in sorted(self.files))
        return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def read_bundle(source: str, *, registries: Registries, catalog: FromCatalog | None = None) -> Bundle:
    """Return the bundle that a source names; with a catalog the source is `package` or `package:version`.

    Raises UserError when it cannot be read, Unavailable when a registry cannot be reached.
    """
    return fetch_bundle(source, registries=registries, catalog=catalog).bundle()


def fetch_bundle(source: str, *, registries: Registries, catalog: FromCatalog | None = None) -> Fetched:
    """Return the files of the bundle that a source names; raises what `read_bundle` raises."""
    if catalog is None or not catalog.catalog:
        return _fetched(source, registries=registries)
    from pointsman.bundle.sources.catalogs import read_catalog, select

    package, _, version = source.partition(":")
    files = _files(catalog.catalog, wanted=_CATALOG_FOLDERS, limits=CATALOG_LIMITS, registries=registries)
    found = read_catalog(files, package, name=catalog.catalog)
    bundle = select(found, channel=catalog.channel, version=version, installed=catalog.installed)
    if bundle.image:
        return replace(_fetched(bundle.image, registries=registries), name=bundle.name)
    return Fetched(bundle.files(), name=bundle.name)


def resolve_digest(image: str, *, registries: Registries) -> str:
    """Return an image's name with the digest that its tag has now."""
    from pointsman.bundle.sources.references import parse_reference
    from pointsman.bundle.sources.registry import pulling

    reference = parse_reference(image)
    if reference.digest:
        return image
    with pulling(reference, _access(image, registries)) as pull:
        return f"{image.removesuffix(f':{reference.tag}')}@{pull.digest()}"


def _fetched(source: str, *, registries: Registries) -> Fetched:
    files, image = _find(source, wanted=_BUNDLE_FOLDERS, limits=BUNDLE_LIMITS, registries=registries)
    return Fetched(files, name=source, image=image)


def _files(source: str, *, wanted: tuple[str, ...], limits: ImageLimits, registries: Registries) -> dict[str, bytes]:
    return _find(source, wanted=wanted, limits=limits, registries=registries)[0]


def _find(
    source: str, *, wanted: tuple[str, ...], limits: ImageLimits, registries: Registries
) -> tuple[dict[str, bytes], str]:
    """Return the files, and the image by its digest if a registry has it."""
    prefix = next((each for each in _LOCAL if source.startswith(each)), "")
    path, tag = _split_tag(source.removeprefix(prefix))
    image = ""
    if not path.exists() and (prefix or source.startswith(_PATHS)):
        raise UserError(f"{path}: there is no such folder or file")
    if not prefix and not path.exists():
        found, image = _from_registry(source, wanted=wanted, limits=limits, registries=registries)
    elif path.is_dir() and not _is_layout(path):
        return _from_folder(path, wanted=wanted, limits=limits), ""
    else:
        from pointsman.bundle.sources.images import local_image

        with local_image(path) as local:
            found = local.read(tag=tag, wanted=wanted, limits=limits)
    if not found:
        raise UserError(f"{source}: has nothing under {' or '.join(wanted)}: it is another kind of image")
    return found, image


def _is_layout(folder: Path) -> bool:
    return (folder / "index.json").is_file() or (folder / "manifest.json").is_file()


def _split_tag(text: str) -> tuple[Path, str]:
    """Return path and tag of `path:tag`; a colon that belongs to the path's own name is left in it."""
    path, _, tag = text.partition(":")
    if tag and not Path(text).exists() and Path(path).exists():
        return Path(path), tag
    return Path(text), ""


def _from_folder(root: Path, *, wanted: tuple[str, ...], limits: ImageLimits) -> dict[str, bytes]:
    """Return the files of the wanted folders; without those, of the folder itself (and below it, for a catalog)."""
    folders = [root / each for each in wanted if (root / each).is_dir()]
    whole = root.rglob("*") if wanted == _CATALOG_FOLDERS else root.glob("*")
    files: dict[str, bytes] = {}
    kept = 0
    for path in sorted(each for folder in folders for each in folder.rglob("*")) if folders else sorted(whole):
        if not path.is_file():
            continue
        if not path.resolve().is_relative_to(root.resolve()):
            raise UserError(f"{path}: is a link that leads out of {root}")
        kept += path.stat().st_size
        if path.stat().st_size > limits.file or kept > limits.kept:
            raise UserError(f"{path}: more than {limits.file} bytes in a file, or {limits.kept} in the folder")
        try:
            files[path.relative_to(root).as_posix()] = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return files


def _from_registry(
    source: str, *, wanted: tuple[str, ...], limits: ImageLimits, registries: Registries
) -> tuple[dict[str, bytes], str]:
    from pointsman.bundle.sources.references import parse_reference
    from pointsman.bundle.sources.registry import pulling

    reference = parse_reference(source)
    with pulling(reference, _access(source, registries)) as pull:
        found, digest = pull.read(wanted=wanted, limits=limits)
    return found, f"{reference.registry}/{reference.repository}@{digest}"


def _access(source: str, registries: Registries) -> "Access":
    from pointsman.bundle.sources.credentials import Credentials, find_credentials
    from pointsman.bundle.sources.references import parse_reference
    from pointsman.bundle.sources.registry import Access

    if bool(registries.username) != bool(registries.password):
        raise UserError("--registry-username and --registry-password go together: give both or none")
    who = Credentials(registries.username, registries.password)
    if not registries.username:
        who = find_credentials(parse_reference(source), environment=registries.environment)
    return Access(who, insecure=registries.insecure, authority=registries.authority)

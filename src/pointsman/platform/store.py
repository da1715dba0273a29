"""Where the bundles of components come from, and where complete charts are written. All reading and writing is here.

A bundle is looked for in this order: the source that somebody named, a folder of bundles, the cache of what was pulled
before, the registry of the pin. What was pulled is cached by its digest. Whatever is found must be what is pinned.

A chart is written in one step: everything into a folder beside, which then takes the place of the old one. A run that
is cut leaves the old chart or the new one, or for a moment both under names that the next run puts right.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pointsman.bundle.chart.chart import LIST
from pointsman.bundle.load import PREFIX
from pointsman.bundle.sources.source import Fetched, FromCatalog, Registries, fetch_bundle
from pointsman.core.errors import PointsmanError, Unavailable, UserError
from pointsman.core.files import private_folder
from pointsman.core.files import replace as replace_file
from pointsman.platform.charts import Chart
from pointsman.platform.folder import PIN, ComponentFolder
from pointsman.platform.spec import BundlePin, read_mapping

_CONTENT = "content"
_PIN_FIELDS = ("image", "version", "digest", "content")
_PIN_HEAD = "# Written by scripts/update-bundle.sh: which bundle the chart is made of.\n"


@dataclass(frozen=True)
class Sources:
    """Where to look for bundles."""

    registries: Registries = field(default_factory=Registries)
    bundles: Path | None = None
    cache: Path | None = None
    offline: bool = False
    """No registry is asked: who only looks should not wait for one."""


@dataclass(frozen=True)
class Found:
    """A bundle's files, and the pin that names exactly them."""

    fetched: Fetched
    pin: BundlePin
    where: str


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return where pulled bundles are kept; nothing without a home."""
    home = environment.get("HOME")
    base = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    return Path(base) / "pointsman" / "bundles" if base else None


def find_bundle(folder: ComponentFolder, sources: Sources, *, source: str = "") -> Found:
    """Return the bundle that a folder is pinned to; raises UserError when it is another one, or nowhere."""
    pin = folder.pin
    if pin is None:
        raise UserError(f"{folder.path}: has no {PIN}: this component is made of no bundle")
    found = fetch(folder, sources, source=source)
    version = found.pin.version
    if version != pin.version:
        raise UserError(
            f"{found.where}: is version {version}, and {folder.path / PIN} says {pin.version}: "
            f"move to it with scripts/update-bundle.sh {version}"
        )
    if pin.content and found.pin.content != pin.content:
        raise UserError(f"{found.where}: its files are {found.pin.content}, and {folder.path / PIN} says {pin.content}")
    return found


def fetch(folder: ComponentFolder, sources: Sources, *, source: str = "", catalog: FromCatalog | None = None) -> Found:
    """Return the bundle from the first place that has it, whatever its version; raises UserError for another's."""
    found = _fetched(folder, sources, source=source, catalog=catalog)
    package, own = found.fetched.bundle().package, folder.spec.packages
    if own and package not in own:
        raise UserError(f"{found.where}: is a bundle of {package}, and {folder.name} is made of {' or '.join(own)}")
    return found


def same_version(found: str, asked: str) -> bool:
    """Say whether a version is the one that was asked for; `1.0` also means `1.0.0`."""
    plain = asked.removeprefix("v")
    return found in {plain, f"{plain}.0"}


def _fetched(folder: ComponentFolder, sources: Sources, *, source: str, catalog: FromCatalog | None) -> Found:
    pin = folder.pin
    assert pin is not None
    if source or catalog:
        return _described(fetch_bundle(source, registries=sources.registries, catalog=catalog), pin)
    local = _in_folder(sources.bundles, folder) if sources.bundles is not None else []
    for found in local:
        if same_version(found.pin.version, pin.version):
            return found
    if (kept := _cached(sources.cache, pin)) is not None:
        return kept
    if sources.offline:
        raise UserError(f"{pin.image}: was not pulled before: set POINTSMAN_BUNDLES, or deploy or render it once")
    named = f"{_without_tag(pin.image)}@{pin.digest}" if pin.digest else pin.image
    try:
        fetched = fetch_bundle(named, registries=sources.registries)
    except PointsmanError as error:
        others = ", ".join(found.pin.version for found in local)
        if not others:
            raise
        kind = Unavailable if isinstance(error, Unavailable) else UserError
        raise kind(f"{error}; {sources.bundles} has only {others}") from None
    _keep(sources.cache, fetched)
    return _described(fetched, pin)


def write_pin(folder: Path, pin: BundlePin) -> None:
    """Put the pin into the folder, in one step."""
    try:
        replace_file(folder / PIN, pin_text(pin))
        (folder / PIN).chmod(0o644)
    except OSError as error:
        raise UserError(f"{folder / PIN}: cannot be written: {error.strerror}") from None


def pin_text(pin: BundlePin) -> str:
    """Return the pin as it stands in its file."""
    return _PIN_HEAD + "".join(f"{name}: {_scalar(getattr(pin, name))}\n" for name in _PIN_FIELDS)


def write_chart_folder(chart: Chart, target: Path) -> list[str]:
    """Write a complete chart in place of the one that was there; return the files of it that somebody edited and keeps.

    Files that others added stay. Raises UserError for a folder that holds anything but a chart of ours.
    """
    mend(target)
    before = _before(target)
    edited = {
        path: text for path, text in before.texts.items() if path not in before.made and path not in before.untouched
    }
    fresh = target.with_name(f".{target.name}.new")
    written = {**chart.written, **edited}
    listing = {
        "package": chart.package,
        "version": chart.version,
        "files": sorted(chart.made),
        "written": {path: _sha256(text.encode()) for path, text in sorted(chart.written.items())},
    }
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        for path, text in {**chart.made, **written, LIST: json.dumps(listing, indent=2) + "\n"}.items():
            file = fresh / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755 if path.endswith(".sh") or os.access(target / path, os.X_OK) else 0o644)
        _swap(fresh, target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise UserError(f"{target}: cannot be written: {error.strerror}") from None
    return sorted(path for path in edited if path in chart.written and chart.written[path] != edited[path])


@dataclass(frozen=True)
class _Before:
    texts: Mapping[str, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()
    untouched: frozenset[str] = frozenset()


def _before(target: Path) -> _Before:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return _Before()
    try:
        listing = json.loads((target / LIST).read_text())
        made, hashes = frozenset(map(str, listing["files"])), dict(listing["written"])
        texts = {
            path.relative_to(target).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(target.rglob("*"))
            if path.is_file() and path != target / LIST
        }
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{target}: is not empty, and no chart of this command: choose another folder") from None
    same = frozenset(path for path, text in texts.items() if hashes.get(path) == _sha256(text.encode()))
    return _Before(texts, made, same)


def _swap(fresh: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def mend(target: Path) -> None:
    """Put back what a run left aside that was cut between its two renames."""
    target = target.absolute()
    old = target.with_name(f".{target.name}.old")
    if old.is_dir() and not target.exists():
        old.rename(target)


def _described(fetched: Fetched, pin: BundlePin) -> Found:
    version = fetched.bundle().version
    exact = replace(pin, version=version, digest=fetched.digest, content=fetched.content)
    return Found(fetched, exact, where=fetched.name)


def _in_folder(bundles: Path, folder: ComponentFolder) -> list[Found]:
    """Return the bundles of this component in a folder of bundles, whatever their version."""
    if not bundles.is_dir():
        raise UserError(f"{bundles}: there is no such folder of bundles")
    assert folder.pin is not None
    mine = [path for path in sorted(bundles.iterdir()) if _package(path) in folder.spec.packages]
    return [_described(fetch_bundle(str(path), registries=Registries()), folder.pin) for path in mine]


def _package(path: Path) -> str:
    file = path / "metadata" / "annotations.yaml"
    if not file.is_file():
        return ""
    found = read_mapping(file).get("annotations")
    return str(found.get(f"{PREFIX}package.v1", "")) if isinstance(found, dict) else ""


def _cached(cache: Path | None, pin: BundlePin) -> Found | None:
    """Return what was pulled before, unless somebody has changed it since."""
    if cache is None or not pin.digest:
        return None
    kept = cache / pin.digest.replace(":", "-")
    if not (kept / _CONTENT).is_file():
        return None
    fetched = fetch_bundle(str(kept / "bundle"), registries=Registries())
    if fetched.content != (kept / _CONTENT).read_text().strip():
        return None
    named = replace(fetched, name=pin.image, image=f"{_without_tag(pin.image)}@{pin.digest}")
    return _described(named, pin)


def _keep(cache: Path | None, fetched: Fetched) -> None:
    """Keep what was pulled; a cache that cannot be written costs the next run a pull, and nothing else."""
    if cache is None or not fetched.digest:
        return
    kept = cache / fetched.digest.replace(":", "-")
    fresh = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        private_folder(cache)
        for path, data in fetched.files.items():
            file = fresh / "bundle" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        (fresh / _CONTENT).write_text(fetched.content + "\n")
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)


def _without_tag(image: str) -> str:
    head, _, last = image.partition("@")[0].rpartition("/")
    return f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]


def _scalar(text: str) -> str:
    return text if text and text.isascii() and not text.replace(".", "").isdigit() else f"'{text}'"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""From the folder of a component to its chart on disk: made, or moved to another version of its bundle.

Owns the order of a move: everything is fetched, compared and rendered before the first byte is written, and what is
written takes effect in one step.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pointsman.bundle.sources.source import FromCatalog
from pointsman.core.errors import PointsmanError, UserError
from pointsman.platform.charts import Chart, complete_chart
from pointsman.platform.folder import PIN, ComponentFolder
from pointsman.platform.spec import BundlePin
from pointsman.platform.store import (
    Found,
    Sources,
    fetch,
    find_bundle,
    pin_text,
    same_version,
    write_chart_folder,
    write_pin,
)
from pointsman.platform.update import BundleUpdate, describe_update


@dataclass(frozen=True)
class Move:
    """The version to go to, and where its bundle is if not where the pin says."""

    version: str
    source: str = ""
    catalog: FromCatalog | None = None


@dataclass(frozen=True)
class PreparedMove:
    """What would change, and how to change it."""

    update: BundleUpdate
    write: Callable[[], str]


def render_charts(folder: ComponentFolder, sources: Sources, *, source: str, out: Path) -> str:
    """Write one component's complete folder; return a line that says what was done."""
    if folder.pin is None:
        kept = write_chart_folder(Chart({}, folder.files), out)
        return _told(f"{out}: manifests of {folder.name}, {len(folder.files)} files", kept)
    found = find_bundle(folder, sources, source=source)
    chart = complete_chart(found.fetched.bundle(), folder, pin=found.pin)
    kept = write_chart_folder(chart, out)
    loose = (
        "" if folder.pin.digest or folder.pin.content else "; not pinned by a digest: scripts/update-bundle.sh does it"
    )
    line = f"{out}: chart of {chart.package} {chart.version}, {len(chart.files)} files, from {found.where}{loose}"
    return _told(line, kept)


def copy_beside(files: Mapping[str, Path], out: Path) -> None:
    """Copy what stands beside the folders, by the names that it gets; what is there already stays."""
    try:
        for name, file in files.items():
            if file.is_file() and not (out / name).exists():
                shutil.copyfile(file, out / name)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from None


def move_bundle(folder: ComponentFolder, sources: Sources, move: Move) -> PreparedMove:
    """Return what moving to another version would change; raises UserError when there is no such version."""
    if folder.pin is None:
        raise UserError(f"{folder.path}: has no {PIN}: this component is made of no bundle")
    wanted = replace(folder.pin, image=_tagged(folder.pin.image, move.version), version=move.version.removeprefix("v"))
    goal = replace(folder, pin=replace(wanted, digest="", content=""))
    new = fetch(goal, sources, source=_source(folder, move), catalog=move.catalog)
    if not same_version(new.pin.version, move.version):
        raise UserError(f"{new.where}: is version {new.pin.version}, not {move.version}: name that one")
    bundle = new.fetched.bundle()
    chart = complete_chart(bundle, _with_pin(folder, new.pin), pin=new.pin)
    old = _old(folder, sources)
    update = describe_update(old.fetched.bundle() if old else None, bundle, namespace=folder.spec.namespace)

    def write() -> str:
        if folder.extracted:
            kept = write_chart_folder(chart, folder.path)
            return _told(f"{folder.path}: chart of {chart.package} {chart.version}, {len(chart.files)} files", kept)
        write_pin(folder.path, new.pin)
        return f"{folder.path / PIN}: {new.pin.version}, {new.pin.digest or new.pin.content}"

    return PreparedMove(update, write)


def _with_pin(folder: ComponentFolder, pin: BundlePin) -> ComponentFolder:
    return replace(folder, pin=pin, files={**folder.files, PIN: pin_text(pin)})


def _old(folder: ComponentFolder, sources: Sources) -> Found | None:
    """Return the bundle that is pinned now; a registry that has it no longer is no reason to stay."""
    try:
        return find_bundle(folder, sources)
    except PointsmanError:
        return None


def _source(folder: ComponentFolder, move: Move) -> str:
    if move.catalog is None or move.source:
        return move.source
    return f"{folder.spec.packages[0] if folder.spec.packages else folder.name}:{move.version.removeprefix('v')}"


def _tagged(image: str, version: str) -> str:
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}:{version}"


def _told(line: str, kept: list[str]) -> str:
    return f"{line}; kept as you edited them: {', '.join(kept)}" if kept else line

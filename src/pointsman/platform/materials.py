"""Read what components are made of: folders, bundles, definitions. The shell around `prepare`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pointsman.bundle.model import Object
from pointsman.bundle.reader import read_documents
from pointsman.core.errors import PointsmanError, Unavailable, UserError
from pointsman.core.files import read_regular
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.platform.cluster import Cluster
from pointsman.platform.folder import read_folder
from pointsman.platform.marks import component_of
from pointsman.platform.prepare import Material
from pointsman.platform.spec import ComponentChoice, DefinitionsSource
from pointsman.platform.store import Sources, find_bundle

_MOST = 32 << 20
_SECONDS = 60


def read_materials(
    choices: Sequence[ComponentChoice], root: Path, sources: Sources, *, say: Callable[[str], None], needed: bool = True
) -> list[Material]:
    """Return what the components are made of; a bundle that cannot be had is an error only where it is needed."""
    found = []
    for choice in choices:
        folder = read_folder(root / (choice.folder or choice.name))
        if folder.pin is None:
            found.append(Material(choice, folder))
            continue
        try:
            bundle = find_bundle(folder, sources, source=choice.source)
        except PointsmanError as error:
            if needed:
                raise
            say(f"note: {folder.name}: without its bundle less can be told: {error}")
            found.append(Material(choice, folder, pin=folder.pin))
            continue
        found.append(Material(choice, folder, bundle.fetched.bundle(), bundle.pin))
    return found


async def missing_definitions(
    cluster: Cluster, material: Material, *, say: Callable[[str], None]
) -> tuple[Object, ...]:
    """Return the definitions of the component's own sources that the cluster has not, or has from us."""
    found: list[Object] = []
    for each in material.folder.spec.definitions:
        there = [one for one in await cluster.listed(CUSTOM_RESOURCE_DEFINITION) if one["spec"]["group"] == each.group]
        if any(not component_of(one) for one in there):
            say(f"{material.folder.name}: the cluster has {each.group} from somebody else, who looks after it")
            continue
        try:
            found += read_source(each, material.folder.path)
        except Unavailable as error:
            if not there:
                raise
            say(f"note: {error}; what is there of {each.group} serves")
    return tuple(found)


def read_source(asked: DefinitionsSource, root: Path) -> list[Object]:
    """Return the definitions of one group from a file or an address; raises UserError when there is none in it."""
    source = asked.source
    text = _fetched(source) if source.startswith("https://") else _read(root / source)
    documents = [each for each in read_documents(text, name=source) if isinstance(each, dict)]
    mine = [
        each for each in documents if each.get("kind") == "CustomResourceDefinition" and _group(each) == asked.group
    ]
    if not mine:
        raise UserError(f"{source}: holds no definition of {asked.group}")
    return mine


def _group(document: Object) -> str:
    spec = document.get("spec")
    return str(spec.get("group", "")) if isinstance(spec, dict) else ""


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, most=_MOST)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _fetched(address: str) -> bytes:
    import httpx2

    try:
        with httpx2.stream("GET", address, follow_redirects=True, timeout=_SECONDS) as answer:
            answer.raise_for_status()
            data = bytearray()
            for piece in answer.iter_bytes():
                data += piece
                if len(data) > _MOST:
                    raise UserError(f"{address}: is larger than {_MOST} bytes")
            return bytes(data)
    except httpx2.HTTPError as error:
        raise Unavailable(f"{address}: cannot be fetched: {error or type(error).__name__}") from None

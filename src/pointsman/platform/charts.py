"""A bundle and what people wrote for it → the files of a complete chart. Pure: the same in gives the same bytes out.

Owns how the two are put together: a file of one never replaces a file of the other, values and their schema are
joined. Definitions go to `manifests-crds/`, which Helm does not see: they are applied by the API server's own means
before the release, because Helm never upgrades definitions and its record of a release has no room for them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman.bundle.chart.chart import make_chart
from pointsman.bundle.filters import wanted
from pointsman.bundle.model import Bundle, Object
from pointsman.bundle.reader import read_documents
from pointsman.bundle.render.certificates import CertManager
from pointsman.bundle.render.objects import InstallOptions
from pointsman.bundle.writer import write_document
from pointsman.core.errors import UserError
from pointsman.platform.folder import CRDS, SPEC, ComponentFolder
from pointsman.platform.spec import BundlePin

_VALUES, _SCHEMA = "values.yaml", "values.schema.json"
_IGNORED = ("manifests-*/", "overlay/", "scripts/", "helmfile.yaml.gotmpl", "bundle.yaml", "component.yaml")
_ANNOTATION = "platform.llm-d.io/"


@dataclass(frozen=True)
class Chart:
    """A complete chart: what was made of the bundle, and what people wrote."""

    made: Mapping[str, str] = field(repr=False)
    written: Mapping[str, str] = field(repr=False)
    version: str = ""
    package: str = ""

    @property
    def files(self) -> dict[str, str]:
        return dict(sorted({**self.made, **self.written}.items()))


def complete_chart(bundle: Bundle, folder: ComponentFolder, *, pin: BundlePin) -> Chart:
    """Return the chart of a bundle with the overlay of a folder.

    Raises what `render` raises, and UserError where the two want the same file or value.
    """
    made = make_chart(
        bundle,
        InstallOptions(namespace=folder.spec.namespace, certificates=CertManager()),
        name=folder.name,
        keep=lambda objects: _kept(objects, folder),
        definitions=CRDS.rstrip("/"),
    )
    made[_VALUES] = _values(made[_VALUES], folder)
    made[_SCHEMA] = _schema(made[_SCHEMA], folder)
    made["Chart.yaml"] = _described(made["Chart.yaml"], pin)
    made[".helmignore"] += "".join(f"{each}\n" for each in _IGNORED)
    for path in folder.files:
        if path in made:
            raise UserError(f"{folder.path / path}: the bundle makes a file of that name: rename yours")
    return Chart(made, folder.files, version=bundle.version, package=bundle.package)


def _kept(objects: list[Object], folder: ComponentFolder) -> list[Object]:
    try:
        return wanted(objects, exclude=folder.spec.exclude)
    except UserError as error:
        raise UserError(f"{folder.path / SPEC}: {str(error).removeprefix('--')}") from None


def _values(extracted: str, folder: ComponentFolder) -> str:
    own = folder.files.get(f"overlay/{_VALUES}", "")
    mine, theirs = (_mapping(text, folder, _VALUES) for text in (own, extracted))
    both = sorted(mine.keys() & theirs.keys())
    if both:
        raise UserError(
            f"{folder.path}/overlay/{_VALUES}: {', '.join(both)}: the chart has it: set it in platform.yaml"
        )
    if not mine:
        return extracted
    # As it was written, comments and all; what is no plain list of keys (JSON, for one) is written anew.
    plain = not own.lstrip().startswith(("{", "---", "%"))
    return f"{extracted}\n{own if plain else write_document(mine)}"


def _schema(extracted: str, folder: ComponentFolder) -> str:
    own = folder.files.get(f"overlay/{_SCHEMA}")
    if own is None:
        return extracted
    try:
        properties = json.loads(own)
    except ValueError as error:
        raise UserError(f"{folder.path}/overlay/{_SCHEMA}: not valid JSON: {error}") from None
    schema = json.loads(extracted)
    schema["properties"] |= properties
    return json.dumps(schema, indent=2) + "\n"


def _described(text: str, pin: BundlePin) -> str:
    """Return Chart.yaml with the bundle that the chart is made of."""
    document = read_documents(text.encode(), name="Chart.yaml")[0]
    facts = {"bundle": pin.image, "digest": pin.digest, "content": pin.content}
    annotations = {f"{_ANNOTATION}{name}": value for name, value in facts.items() if value}
    return write_document({**document, "annotations": annotations})


def _mapping(text: str, folder: ComponentFolder, name: str) -> dict[str, object]:
    documents = read_documents(text.encode(), name=f"{folder.path}/overlay/{name}") if text else []
    if len(documents) > 1 or not all(isinstance(each, dict) for each in documents):
        raise UserError(f"{folder.path}/overlay/{name}: must hold one mapping")
    return documents[0] if documents else {}

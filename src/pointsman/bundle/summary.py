"""What there is to know about a bundle before it is installed: pure, and the same as a document or as lines."""

from collections.abc import Iterator
from typing import Any

from pointsman.bundle.chart.templating import images_of
from pointsman.bundle.model import Bundle, Object, identity, name_of
from pointsman.bundle.validate import findings


def summarise(bundle: Bundle) -> Object:
    """Return a document that says what a bundle is, holds, needs, and what is wrong with it."""
    csv, spec = bundle.csv, bundle.csv.spec
    return {
        "package": bundle.package,
        "name": csv.name,
        "version": bundle.version,
        "installModes": sorted(csv.modes),
        "suggestedNamespace": bundle.suggested_namespace,
        "minKubeVersion": spec.min_kube_version,
        "replaces": spec.replaces,
        "skips": list(spec.skips),
        "skipRange": csv.metadata.annotations.get("olm.skipRange", ""),
        "deployments": [each.name for each in csv.deployments],
        "images": images_of(bundle),
        "definitions": sorted(map(name_of, bundle.crds)),
        "requires": _required(bundle),
        "webhooks": [{"type": each.type, "name": each.generate_name} for each in csv.webhooks],
        "others": [" ".join((identity(each)[0], name_of(each))) for each in bundle.others],
        "problems": [str(each) for each in findings(bundle)],
    }


def lines(summary: Object) -> Iterator[str]:
    """Yield the summary for people: a line for each thing that there is."""
    width = max(map(len, summary))
    for name, value in summary.items():
        shown = list(_shown(value))
        for at, text in enumerate(shown):
            yield f"{name if at == 0 else '':<{width}}  {text}"


def _required(bundle: Bundle) -> list[str]:
    definitions = {each.name for each in bundle.csv.spec.customresourcedefinitions.required}
    apis = {f"{each.version}.{each.group}" for each in bundle.csv.spec.apiservicedefinitions.required}
    return sorted(definitions | apis) + [f"{each.get('type')} {each.get('value')}" for each in bundle.dependencies]


def _shown(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{key}: {each}" for key, each in value.items())
    elif isinstance(value, list):
        for each in value:
            yield " ".join(map(str, each.values())) if isinstance(each, dict) else str(each)
    elif value:
        yield str(value)

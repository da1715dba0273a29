"""Files of a bundle → `Bundle`. Pure: who reads directories, archives and registries is `sources`.

Owns the layout of registry+v1: `manifests/` without sub-directories, `metadata/annotations.yaml`, and what OLM does
with `metadata/properties.yaml`. A folder that holds the manifests themselves is taken too, as older packages are laid
out; its package is then what the ClusterServiceVersion is called before `.v`. A package file beside is no object.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pointsman.bundle.model import Bundle, BundleFinding, Csv, Object, Refused, go_json, without_nulls
from pointsman.bundle.reader import read_documents
from pointsman.bundle.shapes import misshapen, misshapen_object
from pointsman.core.errors import UserError

Files = Mapping[str, bytes]

PREFIX = "operators.operatorframework.io.bundle."
_PACKAGE, _MANIFESTS = f"{PREFIX}package.v1", f"{PREFIX}manifests.v1"
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")


def load_bundle(files: Files, *, name: str) -> Bundle:
    """Return the bundle in these files, whose names are paths from its root.

    Raises Refused, naming the rule and the file, for what is no registry+v1 bundle.
    """
    annotations = _annotations(files, name=name)
    manifests = _manifests(files, annotations, name=name)
    csvs: list[tuple[str, Object]] = []
    crds: list[Object] = []
    others: list[Object] = []
    odd: list[BundleFinding] = []
    for path, document in _objects(manifests, name=name):
        kind = document.get("kind")
        if kind == "ClusterServiceVersion":
            csvs.append((path, document))
        else:
            odd.extend(misshapen_object(document, path=path))
            (crds if kind == "CustomResourceDefinition" else others).append(document)
    if len(csvs) != 1:
        found = "none" if not csvs else ", ".join(path for path, _ in csvs)
        raise _refused("one-csv", f"a bundle has exactly one ClusterServiceVersion, here: {found}", name=name)
    csv = _read_csv(*csvs[0], properties=_properties(files, name=name), name=name)
    odd.extend(misshapen(csv))
    if odd:
        raise Refused(odd, name=name)
    return Bundle(
        package=annotations.get(_PACKAGE, "") if annotations else csv.name.partition(".v")[0],
        csv=csv,
        crds=tuple(crds),
        others=tuple(others),
        annotations=annotations,
        dependencies=tuple(_entries(files, "dependencies", name=name)),
        name=name,
    )


def _annotations(files: Files, *, name: str) -> dict[str, str]:
    path = next((path for path in ("metadata/annotations.yaml", "metadata/annotations.yml") if path in files), None)
    if path is None:
        return {}
    document = _single(files, path, name=name)
    try:
        return msgspec.convert(document.get("annotations", {}), dict[str, str])
    except msgspec.ValidationError as error:
        raise _refused("annotations", f"{path}: annotations: {error}", name=name) from None


def _manifests(files: Files, annotations: Mapping[str, str], *, name: str) -> dict[str, bytes]:
    folder = annotations.get(_MANIFESTS, "manifests/").strip("/") or "manifests"
    found = {path: text for path, text in files.items() if path.startswith(f"{folder}/")}
    if not found and not annotations:
        return {path: text for path, text in files.items() if "/" not in path and path.endswith(_MANIFEST_SUFFIXES)}
    for path in found:
        inner = path.removeprefix(f"{folder}/")
        if "/" in inner:
            raise _refused("flat-manifests", f"{path}: {folder}/ of a bundle has no sub-directories", name=name)
        if inner.startswith("."):
            raise _refused("flat-manifests", f"{path}: {folder}/ of a bundle has no hidden files", name=name)
    return found


def _objects(manifests: Files, *, name: str) -> Iterator[tuple[str, Object]]:
    for path in sorted(manifests):
        for document in _read(manifests, path, name=name):
            for each in _flattened(document):
                if not isinstance(each, dict) or not isinstance(each.get("kind"), str):
                    raise _refused(
                        "object-kind", f"{path}: holds what is no Kubernetes object: it has no kind", name=name
                    )
                yield path, each


def _flattened(document: Any) -> Iterator[Any]:
    if not isinstance(document, dict):
        yield document
    elif document.get("kind") == "List" and isinstance(document.get("items"), list):
        yield from document["items"]
    elif "kind" in document or "packageName" not in document:
        yield document


def _read_csv(path: str, document: Object, *, properties: list[Any], name: str) -> Csv:
    whole = without_nulls(document)
    if properties:
        metadata = whole.setdefault("metadata", {})
        annotations = metadata.setdefault("annotations", {}) if isinstance(metadata, dict) else {}
        annotations["olm.properties"] = _with_properties(annotations.get("olm.properties"), properties, name=name)
    try:
        return msgspec.convert(whole, Csv)
    except msgspec.ValidationError as error:
        raise _refused("csv", f"{path}: {error}", name=name) from None


def _with_properties(present: Any, properties: list[Any], *, name: str) -> str:
    try:
        first = json.loads(present) if present else []
    except (TypeError, ValueError, RecursionError):
        first = None
    if not isinstance(first, list):
        raise _refused("properties", "metadata.annotations['olm.properties'] is no list in JSON", name=name)
    return go_json([*first, *(json.loads(json.dumps(each, sort_keys=True)) for each in properties)])


def _properties(files: Files, *, name: str) -> list[Any]:
    return list(_entries(files, "properties", name=name))


def _entries(files: Files, noun: str, *, name: str) -> list[Object]:
    path = f"metadata/{noun}.yaml"
    if path not in files:
        return []
    found = _single(files, path, name=name).get(noun) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _refused(noun, f"{path}: {noun} is not a list of mappings", name=name)
    return found


def _single(files: Files, path: str, *, name: str) -> Object:
    documents = _read(files, path, name=name)
    if len(documents) > 1 or not all(isinstance(each, dict) for each in documents):
        raise _refused("metadata", f"{path}: must be one mapping", name=name)
    return documents[0] if documents else {}


def _read(files: Files, path: str, *, name: str) -> list[Any]:
    try:
        return read_documents(files[path], name=path)
    except UserError as error:
        raise _refused("yaml", str(error), name=name) from None


def _refused(rule: str, message: str, *, name: str) -> Refused:
    return Refused([BundleFinding(rule, message)], name=name)

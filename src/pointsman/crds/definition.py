"""A CustomResourceDefinition, as far as we look into it: its name, its versions, its release.

`read_definitions` takes what people bring in files and refuses with one sentence what is none; what comes from the API
server is one by definition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pointsman.api.inference import inference_definitions
from pointsman.core.errors import UserError
from pointsman.core.kinds import Kind, Object
from pointsman.crds.releases import release_of


@dataclass(frozen=True)
class Definition:
    """One definition; the document has metadata with a name and a spec with versions."""

    document: Object

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.document["spec"]
        return spec

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.document["metadata"].get("annotations") or {}

    @property
    def release(self) -> str:
        return release_of(self.annotations)

    @property
    def versions(self) -> dict[str, Mapping[str, Any]]:
        return {version["name"]: version for version in self.spec["versions"]}

    @property
    def storage(self) -> str:
        return next(name for name, version in self.versions.items() if version.get("storage"))

    @property
    def stored(self) -> tuple[str, ...]:
        """The versions in which the API server may have written objects."""
        return tuple(self.document.get("status", {}).get("storedVersions") or ())

    @property
    def kind(self) -> Kind:
        """The kind, in the version in which its objects are stored."""
        spec = self.spec
        names = spec["names"]
        namespaced = spec.get("scope") != "Cluster"
        return Kind(spec["group"], self.storage, names["kind"], names["plural"], namespaced=namespaced)


@cache
def our_definitions() -> tuple[Definition, ...]:
    """Return the definitions that come with us."""
    return tuple(Definition(document) for document in inference_definitions())


def read_definitions(documents: Iterable[Any], *, source: str) -> tuple[Definition, ...]:
    """Return the definitions among the documents of a file; other objects beside them are passed over.

    Raises UserError when there is none, one is not whole, or one stands there twice.
    """
    found: dict[str, Definition] = {}
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
            continue
        one = _read(document, source=source)
        if one.name in found:
            raise UserError(f"{source}: {one.name} stands there twice: keep one of them")
        found[one.name] = one
    if not found:
        raise UserError(f"{source}: no CustomResourceDefinition in it: name a file with definitions")
    return tuple(found.values())


def _read(document: Object, *, source: str) -> Definition:
    if document.get("apiVersion") != "apiextensions.k8s.io/v1":
        raise UserError(f"{source}: apiVersion is {document.get('apiVersion')!r}: write apiextensions.k8s.io/v1")
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not isinstance(name := metadata.get("name"), str) or not name:
        raise UserError(f"{source}: metadata.name is missing: write PLURAL.GROUP")
    where = f"{source}: {name}"
    if not isinstance(spec, dict) or not isinstance(spec.get("names"), dict) or not isinstance(spec.get("group"), str):
        raise UserError(f"{where}: spec.group and spec.names are missing: name the group and the kind")
    for field in ("kind", "plural"):
        if not isinstance(spec["names"].get(field), str):
            raise UserError(f"{where}: spec.names.{field} is missing: write it")
    for field in ("labels", "annotations"):
        if not isinstance(metadata.get(field) or {}, dict):
            raise UserError(f"{where}: metadata.{field} is no mapping: write name: value")
    _check_versions(spec.get("versions"), where=where)
    # What else stands in a file (a status of nothing, dates) is of the cluster that it came from.
    kept = {key: value for key, value in metadata.items() if key in {"name", "labels", "annotations"} and value}
    return Definition({"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": kept, "spec": spec})


def _check_versions(versions: Any, *, where: str) -> None:
    if not isinstance(versions, list) or not versions or not all(isinstance(each, dict) for each in versions):
        raise UserError(f"{where}: spec.versions is empty or no list: write at least one version")
    names = [version.get("name") for version in versions]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise UserError(f"{where}: spec.versions need a name each, and no two the same")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        raise UserError(f"{where}: spec.versions: mark exactly one of them with storage: true")
    for version in versions:
        schema = version.get("schema", {})
        if not isinstance(schema, dict) or not isinstance(schema.get("openAPIV3Schema", {}), dict):
            raise UserError(f"{where}: schema of version {version['name']} is no mapping: write openAPIV3Schema in it")

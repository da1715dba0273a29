"""Small definitions for tests: one field, written as short as it can be."""

from typing import Any

from pointsman.api.inference import BUNDLE_VERSION
from pointsman.crds import Definition


def version(name: str = "v1", *, storage: bool = True, spec: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return a version whose objects have this spec."""
    properties = {"spec": spec if spec is not None else {"type": "object", "properties": {"a": {"type": "string"}}}}
    root = {"type": "object", "properties": properties}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": root}, **more}


def definition(*versions: Any, release: str = "", name: str = "things.example.dev", **spec: Any) -> Definition:
    """Return a definition of Things."""
    metadata: dict[str, Any] = {"name": name}
    if release:
        metadata["annotations"] = {BUNDLE_VERSION: release}
    names = {"kind": "Thing", "plural": "things"} | spec.pop("names", {})
    whole = {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [*(versions or (version(),))]}
    document = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
    return Definition({**document, "spec": whole | spec})


def with_field(field: Any, **spec: Any) -> Definition:
    """Return a definition whose spec has the field `a`."""
    return definition(version(spec={"type": "object", "properties": {"a": field}, **spec}))


def with_spec(**spec: Any) -> Definition:
    """Return a definition with this spec."""
    return definition(version(spec={"type": "object", **spec}))

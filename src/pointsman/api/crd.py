"""CustomResourceDefinitions from models, so that what the API server checks is what the code reads.

The API server wants a structural schema: no references, no alternatives, no titles. `structural` makes one from what
pydantic writes. Two things need care. Null: a field without a default becomes `nullable`, because the API server
refuses null otherwise; a field with a default must not, because only then does the server put the default in null's
place. Numbers: Kubernetes counts in 32 bits unless a field says otherwise.
"""

from typing import Any

from pydantic import BaseModel

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment, SimulatorStatus
from pointsman.kube.kinds import Kind

Schema = dict[str, Any]

_API_VERSION = "Version of the schema of this object, such as sim.llm-d.io/v1alpha1."
_KIND = "The resource that this object is."
_DROPPED = ("title", "$defs", "additionalProperties", "default", "properties", "items", "anyOf", "$ref")


def simulator_definition() -> Schema:
    """Return the definition of SimulatorDeployment."""
    columns = [
        _column("Replicas", ".status.replicas", "Simulators that exist.", type="integer"),
        _column("Ready", ".status.readyReplicas", "Simulators that are ready.", type="integer"),
        _column("Gateway", ".status.gatewayURL", "Where to send requests.", priority=1),
        _column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why it is ready, or is not.", priority=1),
        _column("Age", ".metadata.creationTimestamp", "Since when it is there.", type="date"),
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": SIMULATOR_DEPLOYMENT.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": resource(SimulatorDeployment, status=SimulatorStatus)},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
    }
    return definition(SIMULATOR_DEPLOYMENT, short="simdep", version=version)


def definition(kind: Kind, *, short: str, version: Schema) -> Schema:
    """Return a definition with one version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind), "labels": {"app.kubernetes.io/part-of": "pointsman"}},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [short],
                "categories": ["llm-d"],
            },
            "versions": [version],
        },
    }


def resource(model: type[BaseModel], *, status: type[BaseModel]) -> Schema:
    """Return the schema of a resource; the API server itself checks all but spec and status."""
    document = model.model_json_schema(by_alias=True)
    spec = structural(document["properties"]["spec"], definitions=document["$defs"])
    return {
        "type": "object",
        "description": document["description"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"type": "object"},
            # With a default of its own, the defaults inside apply to a resource that says nothing at all.
            "spec": spec | {"default": {}},
            "status": structural_of(status),
        },
        "required": ["metadata"],
        # The server knows no path into metadata; the sentence names the field.
        "x-kubernetes-validations": [_without(rule, "fieldPath") for rule in document["x-kubernetes-validations"]],
    }


def structural_of(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model."""
    document = model.model_json_schema(by_alias=True)
    return structural(document, definitions=document.get("$defs", {}))


def structural(schema: Schema, *, definitions: Schema) -> Schema:
    """Return the schema with references put in place and alternatives to null as `nullable`."""
    nullable = False
    if "anyOf" in schema:
        (only,) = (each for each in schema["anyOf"] if each != {"type": "null"})
        schema, nullable = {**only, **schema}, True
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    first: Schema = {name: schema[name] for name in ("description", "type") if name in schema}
    if first.get("type") == "integer":
        first["format"] = "int32"
    result = first | {name: value for name, value in schema.items() if name not in _DROPPED}
    # Null, an empty list or text: nothing worth writing into every object, and null then counts as left out.
    default = schema.get("default")
    if default not in (None, [], ""):
        result["default"] = default
    elif nullable or default is not None:
        result["nullable"] = True
    return result | _inside(schema, definitions=definitions)


def _inside(schema: Schema, *, definitions: Schema) -> Schema:
    """Return what the schema says of fields, items and values, each structural in turn."""
    found: Schema = {}
    if "properties" in schema:
        pairs = schema["properties"].items()
        found["properties"] = {name: structural(inner, definitions=definitions) for name, inner in pairs}
    for key in ("items", "additionalProperties"):
        if schema.get(key):
            found[key] = structural(schema[key], definitions=definitions)
    return found


def _without(schema: Schema, name: str) -> Schema:
    return {key: value for key, value in schema.items() if key != name}


def _column(name: str, path: str, description: str, *, type: str = "string", priority: int = 0) -> Schema:  # noqa: A002 - the field's own name
    column = {"name": name, "type": type, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})

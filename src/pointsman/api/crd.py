"""CustomResourceDefinitions from models, so that what the API server checks is what the code reads.

The API server wants a structural schema: no references, no alternatives, no titles. `structural` makes one from what
pydantic writes. Two things need care. Null: a field without a default becomes `nullable`, because the API server
refuses null otherwise; a field with a default must not, because only then does the server put the default in null's
place. Numbers: Kubernetes counts in 32 bits unless a field says otherwise.

A schema that another project publishes is made `exact`: it says what the model says and nothing more, because none of
the above is ours to decide there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from pointsman.api.scheduler import SCHEDULER_INSTALL, SchedulerInstall, SchedulerStatus
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment, SimulatorStatus
from pointsman.core.kinds import Kind

Schema = dict[str, Any]

API_VERSION = "Version of the schema of this object, such as {}."
KIND = "The resource that this object is."
_DROPPED = ("title", "$defs", "additionalProperties", "default", "properties", "items", "anyOf", "$ref", "const")


def simulator_definition() -> Schema:
    """Return the definition of SimulatorDeployment."""
    columns = [
        column("Replicas", ".status.replicas", "Simulators that exist.", type="integer"),
        column("Ready", ".status.readyReplicas", "Simulators that are ready.", type="integer"),
        *_details(),
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    schema = resource(SIMULATOR_DEPLOYMENT, SimulatorDeployment, status=SimulatorStatus)
    return _ours(SIMULATOR_DEPLOYMENT, schema, columns=columns, short="simdep", scale=scale)


def scheduler_definition() -> Schema:
    """Return the definition of SchedulerInstall."""
    ready = '.status.conditions[?(@.type=="Ready")].status'
    columns = [
        column("Ready", ready, "Whether requests are served as they are picked for."),
        column("Way", ".status.way", "How the gateway is made to follow picks."),
        *_details(),
    ]
    schema = resource(SCHEDULER_INSTALL, SchedulerInstall, status=SchedulerStatus)
    return _ours(SCHEDULER_INSTALL, schema, columns=columns, short="schedinst")


def _ours(kind: Kind, schema: Schema, *, columns: Sequence[Schema], short: str, scale: Schema | None = None) -> Schema:
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": scale} if scale else {})},
        "additionalPrinterColumns": list(columns),
    }
    names = {"shortNames": [short], "categories": ["llm-d"]}
    metadata = {"labels": {"app.kubernetes.io/part-of": "pointsman"}}
    return definition(kind, names=names, versions=[version], metadata=metadata)


def _details() -> list[Schema]:
    reason = '.status.conditions[?(@.type=="Ready")].reason'
    return [
        column("Gateway", ".status.gatewayURL", "Where to send requests.", priority=1),
        column("Reason", reason, "Why it is ready, or is not.", priority=1),
        column("Age", ".metadata.creationTimestamp", "Since when it is there.", type="date"),
    ]


def definition(
    kind: Kind, *, names: Mapping[str, Sequence[str]], versions: Sequence[Schema], metadata: Mapping[str, Any]
) -> Schema:
    """Return a definition; `names` has what people may say beside the kind's own name."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind), **metadata},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                **names,
            },
            "versions": list(versions),
        },
    }


def published(kind: Kind, model: type[BaseModel]) -> Schema:
    """Return the exact schema of a resource whose model has its spec and status and what is required of them."""
    document = model.model_json_schema(by_alias=True)
    whole = structural(document, definitions=document["$defs"], exact=True)
    head = {
        "apiVersion": {"type": "string", "description": API_VERSION.format(kind.api_version)},
        "kind": {"type": "string", "description": KIND},
        "metadata": {"type": "object"},
    }
    return {**whole, "properties": {**head, **whole["properties"]}}


def resource(kind: Kind, model: type[BaseModel], *, status: type[BaseModel]) -> Schema:
    """Return the schema of a resource; the API server itself checks all but spec and status."""
    document = model.model_json_schema(by_alias=True)
    spec = structural(document["properties"]["spec"], definitions=document["$defs"])
    # With a default of its own, the defaults inside apply to a resource that says nothing at all.
    must = ["metadata", "spec"] if "required" in spec else ["metadata"]
    spec |= {} if "required" in spec else {"default": {}}
    return {
        "type": "object",
        "description": document["description"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": API_VERSION.format(kind.api_version),
            },
            "kind": {"type": "string", "description": KIND},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_of(status),
        },
        "required": must,
        # The server knows no path into metadata; the sentence names the field.
        "x-kubernetes-validations": [_without(rule, "fieldPath") for rule in document["x-kubernetes-validations"]],
    }


def structural_of(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model."""
    document = model.model_json_schema(by_alias=True)
    return structural(document, definitions=document.get("$defs", {}))


def structural(schema: Schema, *, definitions: Schema, exact: bool = False) -> Schema:
    """Return the schema with references put in place and alternatives to null as `nullable`."""
    nullable = False
    if "anyOf" in schema:
        (only,) = (each for each in schema["anyOf"] if each != {"type": "null"})
        schema, nullable = {**only, **schema}, True
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    first: Schema = {name: schema[name] for name in ("description", "type") if name in schema}
    if first.get("type") == "integer" and not exact:
        first["format"] = "int32"
    result = first | {name: value for name, value in schema.items() if name not in _DROPPED}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    # Null, an empty list or text: nothing worth writing into every object, and null then counts as left out.
    default = schema.get("default")
    if default not in ((None,) if exact else (None, [], "")):
        result["default"] = default
    elif not exact and (nullable or default is not None):
        result["nullable"] = True
    if exact and "x-kubernetes-validations" in result:
        result["x-kubernetes-validations"] = [
            _without(rule, "fieldPath") for rule in result["x-kubernetes-validations"]
        ]
    return result | _inside(schema, definitions=definitions, exact=exact)


def _inside(schema: Schema, *, definitions: Schema, exact: bool) -> Schema:
    """Return what the schema says of fields, items and values, each structural in turn."""
    found: Schema = {}
    if "properties" in schema:
        pairs = schema["properties"].items()
        found["properties"] = {name: structural(inner, definitions=definitions, exact=exact) for name, inner in pairs}
    for key in ("items", "additionalProperties"):
        if schema.get(key):
            found[key] = structural(schema[key], definitions=definitions, exact=exact)
    return found


def _without(schema: Schema, name: str) -> Schema:
    return {key: value for key, value in schema.items() if key != name}


def column(name: str, path: str, description: str, *, type: str = "string", priority: int = 0) -> Schema:  # noqa: A002 - the field's own name
    made = {"name": name, "type": type, "jsonPath": path, "description": description}
    return made | ({"priority": priority} if priority else {})

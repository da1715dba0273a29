"""The definitions of LLMInferenceService and LLMInferenceServiceConfig, for clusters without KServe."""

from pydantic import BaseModel

from pointsman.api.crd import API_VERSION, KIND, Schema, column, definition, structural_of
from pointsman.api.llminferenceservice import CONFIG, SERVICE, VERSIONS, LLMSpec, LLMStatus
from pointsman.core.kinds import Kind

_READY = '.status.conditions[?(@.type=="Ready")]'
_COLUMNS = [
    column("URL", ".status.url", "Where to send requests."),
    column("Ready", f"{_READY}.status", "Whether requests are served."),
    column("Reason", f"{_READY}.reason", "Why it is ready, or is not."),
    column("Age", ".metadata.creationTimestamp", "Since when it is there.", type="date"),
    column("URLs", ".status.addresses[*].url", "All ways in.", priority=1),
]


def serving_definitions() -> list[Schema]:
    """Return both definitions."""
    return [
        _define(SERVICE, "A model, its servers, and optionally a picker and a route in front of them.", LLMStatus),
        _define(CONFIG, "Part of a spec that services begin with.", None),
    ]


def _define(kind: Kind, description: str, status: type[BaseModel] | None) -> Schema:
    names = {"shortNames": ["llmisvc"]} if status else {}
    metadata = {"labels": {"app.kubernetes.io/part-of": "pointsman"}}
    versions = [_version(kind, name, description=description, status=status) for name in VERSIONS]
    # The newest is stored, as KServe has it; the two differ in what each leaves unsaid, so nothing is converted.
    return definition(kind, names=names, versions=versions, metadata=metadata)


def _version(kind: Kind, name: str, *, description: str, status: type[BaseModel] | None) -> Schema:
    properties: Schema = {
        "apiVersion": {"type": "string", "description": API_VERSION.format(f"{kind.group}/{name}")},
        "kind": {"type": "string", "description": KIND},
        "metadata": {"type": "object"},
        "spec": structural_of(LLMSpec),
    }
    version: Schema = {"name": name, "served": True, "storage": name == VERSIONS[-1]}
    if status is not None:
        properties["status"] = structural_of(status)
        version |= {"subresources": {"status": {}}, "additionalPrinterColumns": _COLUMNS}
    schema = {"type": "object", "description": description, "properties": properties}
    return version | {"schema": {"openAPIV3Schema": schema}}

"""An inline InferencePool in either of its spellings, as the one that is served today. Pure.

v1alpha1 of the service has the spec of `inference.networking.x-k8s.io/v1alpha2`, v1alpha2 that of
`inference.networking.k8s.io/v1`.
"""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def current(spec: Mapping[str, Any]) -> Object:
    """Return the spec in today's spelling."""
    result = {name: value for name, value in spec.items() if name not in {"extensionRef", "targetPortNumber"}}
    if "targetPortNumber" in spec:
        result.setdefault("targetPorts", [{"number": spec["targetPortNumber"]}])
    if "extensionRef" in spec:
        result.setdefault("endpointPickerRef", _picker(spec["extensionRef"]))
    selector = spec.get("selector")
    if isinstance(selector, Mapping) and selector and "matchLabels" not in selector:
        result["selector"] = {"matchLabels": dict(selector)}
    return result


def _picker(reference: Mapping[str, Any]) -> Object:
    result = {name: value for name, value in reference.items() if name != "portNumber"}
    if "portNumber" in reference:
        result["port"] = {"number": reference["portNumber"]}
    return result

"""How our things on a cluster are told from others': two labels on objects, one value in a Helm release. Pure.

An object is ours when it carries the label with a component's name, and by nothing else. The second label says which
step wrote it, so that what was put up first is taken down last even when nothing but the cluster is left to ask.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.core.kinds import Object

MANAGER = "pointsman-platform"
COMPONENT, STEP = "platform.llm-d.io/component", "platform.llm-d.io/step"
RELEASE_VALUES = {"global": {"managedBy": MANAGER}}


def marked(document: Object, *, component: str, step: str) -> Object:
    """Return the object with our labels; what it has of its own stays."""
    metadata = document["metadata"]
    labels = {**(metadata.get("labels") or {}), COMPONENT: component, STEP: step}
    return {**document, "metadata": {**metadata, "labels": labels}}


def component_of(live: Object) -> str:
    """Return whose an object is; empty when it is not ours."""
    return str((live["metadata"].get("labels") or {}).get(COMPONENT, ""))


def step_of(live: Object) -> str:
    """Return which step wrote an object of ours."""
    return str((live["metadata"].get("labels") or {}).get(STEP, ""))


def is_our_release(values: Mapping[str, Any]) -> bool:
    """Say whether a release was installed with our values."""
    found = values.get("global")
    return isinstance(found, dict) and found.get("managedBy") == MANAGER

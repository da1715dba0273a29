"""The loop between the mesh's operator and istiod over webhooks: told and ended. Pure.

istiod writes its certificate into two webhook configurations, the operator sees that as drift and writes its own back,
and so on for as long as both live. The operator leaves alone what carries its own annotation for that. Both
configurations need it; it can be put on before the loop starts, and ends it once it runs. A loop shows in the
generation, which grows with every change of the content and never otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.core.kinds import Object

IGNORE = "sailoperator.io/ignore"
PREFIXES = {
    "MutatingWebhookConfiguration": "istio-sidecar-injector",
    "ValidatingWebhookConfiguration": "istio-validator-",
}
LOOPING = 2
"""Changes of content within one look that nobody makes by hand."""


@dataclass(frozen=True)
class WebhookState:
    """One of istiod's configurations at one moment."""

    kind: str
    name: str
    generation: int
    ignored: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def istio_webhooks(found: Iterable[Object], *, namespace: str) -> list[WebhookState]:
    """Return istiod's configurations among all; those of another mesh are not looked at."""
    return sorted(
        (_state(each) for each in found if _is_istios(each, namespace)), key=lambda each: (each.kind, each.name)
    )


def missing_kinds(states: Iterable[WebhookState]) -> list[str]:
    """Return which of the two kinds is not there yet."""
    there = {each.kind for each in states}
    return [kind for kind in PREFIXES if kind not in there]


def looping(before: Iterable[WebhookState], after: Iterable[WebhookState]) -> list[WebhookState]:
    """Return the configurations that somebody keeps writing to."""
    first: Mapping[tuple[str, str], int] = {(each.kind, each.name): each.generation for each in before}
    return [each for each in after if each.generation - first.get((each.kind, each.name), each.generation) >= LOOPING]


def _is_istios(document: Object, namespace: str) -> bool:
    prefix = PREFIXES.get(document["kind"])
    if prefix is None or not document["metadata"]["name"].startswith(prefix):
        return False
    services = [((each.get("clientConfig") or {}).get("service") or {}) for each in document.get("webhooks") or []]
    return any(each.get("namespace") == namespace for each in services)


def _state(document: Object) -> WebhookState:
    metadata = document["metadata"]
    ignored = (metadata.get("annotations") or {}).get(IGNORE) == "true"
    return WebhookState(document["kind"], metadata["name"], int(metadata.get("generation", 0)), ignored)

"""Which consumer reads which version of a pool. `TABLE` is the data; a release that changes it is one more line.

What a consumer does not read, it does not refuse: objects are ignored in silence, which is why somebody has to say so.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.api.inference import ALPHA_POOL, GROUP, LEGACY_GROUP, POOL
from pointsman.crds.consumers import Consumer
from pointsman.crds.releases import minor

V1 = f"{GROUP}/v1"
V1ALPHA2 = f"{LEGACY_GROUP}/v1alpha2"
_DEFINITION = {V1: str(POOL), V1ALPHA2: str(ALPHA_POOL)}


@dataclass(frozen=True)
class ReadVersions:
    """From this minor version on, until a later row of the same consumer, these are read; None: we do not know."""

    consumer: str
    since: tuple[int, int]
    reads: tuple[str, ...] | None


TABLE = (
    ReadVersions("Istio", (0, 0), ()),
    ReadVersions("Istio", (1, 27), (V1ALPHA2,)),
    ReadVersions("Istio", (1, 28), (V1,)),
    ReadVersions("GIE picker", (0, 0), (V1ALPHA2,)),
    ReadVersions("GIE picker", (1, 0), (V1, V1ALPHA2)),  # one of them, by --pool-group
    ReadVersions("GIE picker", (1, 6), (V1,)),
    ReadVersions("llm-d picker", (0, 0), (V1ALPHA2,)),
    ReadVersions("llm-d picker", (0, 3), (V1, V1ALPHA2)),  # by --pool-group, as the library that it was built on
    ReadVersions("llm-d picker", (0, 10), (V1,)),
    ReadVersions("KServe", (0, 15), (V1ALPHA2,)),
    ReadVersions("KServe", (0, 16), None),
    ReadVersions("KServe", (0, 20), (V1, V1ALPHA2)),  # writes both where both are defined
    ReadVersions("Pointsman", (0, 0), (V1, V1ALPHA2)),
)


@dataclass(frozen=True)
class Finding:
    """What a consumer will not see."""

    consumer: Consumer
    definition: str
    says: str


def reads(consumer: str, version: str) -> tuple[str, ...] | None:
    """Return which versions of a pool the consumer reads; None when we do not know it or its version."""
    at = minor(version.removeprefix("v"))
    rows = [row for row in TABLE if row.consumer == consumer and at is not None and row.since <= at]
    return max(rows, key=lambda row: row.since).reads if rows else None


def findings(found: Iterable[Consumer], *, objects: dict[str, int]) -> list[Finding]:
    """Return what consumers ignore of the pool definitions that are installed (`objects`: how many each has)."""
    told: list[Finding] = []
    for consumer in found:
        known = reads(consumer.what, consumer.version) if consumer.role != "route" else None
        if known is None:
            continue
        for version, definition in _DEFINITION.items():
            if definition in objects and version not in known and _concerns(consumer, definition):
                told.append(Finding(consumer, definition, _sentence(consumer, known, version, objects[definition])))
    return told


def _concerns(consumer: Consumer, definition: str) -> bool:
    """Tell whether the definition matters to it: a picker follows one pool, a controller all."""
    return not consumer.uses or definition in consumer.uses


def _sentence(consumer: Consumer, known: tuple[str, ...], version: str, count: int) -> str:
    what = f"{consumer.what} {consumer.version}"
    only = f"reads only {', '.join(known)}" if known else "reads no InferencePool at all"
    return f"{what} {only}: InferencePool {version} objects will be ignored ({count} there now)"

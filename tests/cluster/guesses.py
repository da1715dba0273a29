"""Documents that a schema may or may not allow: mostly near its limits, now and then of another type altogether."""

import random
from typing import Any

Schema = dict[str, Any]

_ANYTHING: tuple[Any, ...] = (1, "x", True, [], {}, 1.5, -1, "", [1], {"a": 1})
_NUMBERS = (-1, 0, 1, 2, 10, 11, 8200, 8201, 9002, 9003, 9090, 65535, 65536, 1_000_001, 2**31 - 1, 2**31)
_TEXTS = (
    *("", "a", "A", "-a", "a-", "a.b", "b", "-b", "-" + "b" * 11, "-" + "b" * 12, "x" * 58, "x" * 59, "x" * 63),
    *("gaie-sim-epp", "gaie-sim-epp-b", "infra-sim-inference-gateway"),
)
_QUANTITIES = (0, 1, 2, "1", "2", "500m", "1500m", "1Gi", "1e3", ".5", "0.5", "1.", "+1", "-1", "x", 0.5)


def guess(schema: Schema, *, rng: random.Random) -> Any:
    """Return a value for a schema, more often right than wrong."""
    chance = rng.random()
    if chance < 0.06:
        return None
    if chance < 0.1:
        return rng.choice(_ANYTHING)
    if "enum" in schema:
        return rng.choice((*schema["enum"], "nope"))
    if "x-kubernetes-int-or-string" in schema:
        return rng.choice(_QUANTITIES)
    if "properties" in schema:
        return fields(schema, rng=rng, share=0.45)
    if "additionalProperties" in schema:
        names = rng.sample(("cpu", "memory", "gpu"), rng.randrange(3))
        return {name: guess(schema["additionalProperties"], rng=rng) for name in names}
    if "items" in schema:
        return [guess(schema["items"], rng=rng) for _ in range(rng.randrange(3))]
    return rng.choice({"boolean": (True, True, False), "integer": _NUMBERS, "string": _TEXTS}[schema["type"]])


def fields(schema: Schema, *, rng: random.Random, share: float) -> dict[str, Any]:
    """Return a block with a share of its fields."""
    return {name: guess(inner, rng=rng) for name, inner in schema["properties"].items() if rng.random() < share}

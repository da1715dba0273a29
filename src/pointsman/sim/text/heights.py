"""How deep a value of a JSON schema must be at least, so that one that refers to itself can be brought to an end."""

from collections.abc import Mapping
from math import inf
from typing import Any

from pointsman.sim.failures import Refusal
from pointsman.sim.text.references import target

_DEEPEST = 12  # looked at; deeper is without end


class Heights:
    """The least heights of the parts of one schema."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._known: dict[tuple[int, int], tuple[Any, float]] = {}  # with the part itself, so that its id stays its own

    def of(self, schema: Any, deepest: int = _DEEPEST) -> float:
        """Return the least height of what a schema allows: 0 for plain values, infinite where there is no end."""
        if not isinstance(schema, dict):
            return 0
        if deepest <= 0:
            return inf
        key = id(schema), deepest
        if key not in self._known:
            self._known[key] = schema, self._least(schema, deepest)
        return self._known[key][1]

    def _least(self, schema: Mapping[str, Any], deepest: int) -> float:
        if "enum" in schema or "const" in schema:
            return 0
        found: float = 0
        if "$ref" in schema:
            found = self.of(self._target(schema["$ref"]), deepest - 1)
        for each in _list(schema.get("allOf")):
            found = max(found, self.of(each, deepest - 1))
        for key in ("anyOf", "oneOf"):
            if options := _list(schema.get(key)):
                found = max(found, min(self.of(each, deepest - 1) for each in options))
        kinds = schema.get("type")
        if isinstance(kinds, list) and not {"object", "array"}.issuperset(map(str, kinds)):
            return found
        return max(found, self._inside(schema, deepest))

    def _inside(self, schema: Mapping[str, Any], deepest: int) -> float:
        """Return the least height that properties and items make necessary."""
        parts: list[Any] = []
        properties, needed = schema.get("properties"), _list(schema.get("required"))
        if isinstance(properties, dict):
            parts += [properties[name] for name in needed if isinstance(name, str) and name in properties]
        if schema.get("minItems"):
            parts.append(schema.get("items"))
        return max((1 + self.of(each, deepest - 1) for each in parts), default=1 if _holds(schema) else 0)

    def _target(self, reference: Any) -> Any:
        try:
            return target(self.root, reference, where="")
        except Refusal:
            return None


def _holds(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") in ("object", "array") or "properties" in schema


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []

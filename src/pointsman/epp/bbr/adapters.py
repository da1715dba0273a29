"""Which base model an adapter belongs to, as ConfigMaps say. Pure: fed with events, asked for names.

A ConfigMap has `baseModel` and, as a YAML list, `adapters`. A base model is its own base, as long as any ConfigMap
names it; of what nobody names the base is not known. An adapter that two ConfigMaps claim belongs to the one that came
last, and to the other again when that goes. Each label is followed by itself: a ConfigMap with both counts until
both are gone.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError

MANAGED = ("inference.llm-d.ai/ipp-managed", "inference.networking.k8s.io/bbr-managed")
"""The label, today's and the one before, by which a ConfigMap is ours when it says `true`."""


Key = tuple[str, str, str]
"""The label by which a ConfigMap was found, its namespace and its name."""


class Adapters:
    """What all ConfigMaps so far amount to."""

    def __init__(self) -> None:
        self._maps: dict[Key, tuple[str, frozenset[str]]] = {}  # base and adapters, the newest last
        self._bases: dict[str, str] = {}

    def take(self, document: Mapping[str, Any], *, label: str) -> str:
        """Take a ConfigMap as it is now; return what is wrong with it, nothing when it is in order or not ours."""
        metadata = _mapping(document.get("metadata"))
        if metadata.get("deletionTimestamp") or _mapping(metadata.get("labels")).get(label) != "true":
            self.gone(document, label=label)
            return ""
        key = _key(document, label)
        name, data = f"ConfigMap {key[1]}/{key[2]}", _mapping(document.get("data"))
        base = str(data.get("baseModel") or "").strip()
        if not base:
            return f"{name}: baseModel is missing: name the base model"
        try:
            listed = parse_yaml(str(data.get("adapters") or "[]"), name="adapters") or []
        except UserError as error:
            return f"{name}: {error}"
        if not isinstance(listed, list):
            return f"{name}: adapters is no list: write one adapter to a line, with a dash before it"
        self._maps.pop(key, None)
        self._maps[key] = (base, frozenset(name for each in listed if (name := str(each).strip())))
        self._work_out()
        return ""

    def gone(self, document: Mapping[str, Any], *, label: str) -> None:
        """Take note that a ConfigMap is no more, or no more with this label."""
        if self._maps.pop(_key(document, label), None) is not None:
            self._work_out()

    def base_of(self, model: str) -> str:
        """Return the base model of an adapter, or of itself; nothing when nobody knows it."""
        return self._bases.get(model.strip(), "")

    def __len__(self) -> int:
        return len(self._maps)

    def _work_out(self) -> None:
        bases = {base: base for base, _ in self._maps.values()}
        for base, adapters in self._maps.values():
            bases.update(dict.fromkeys(adapters, base))
        self._bases = bases


def _key(document: Mapping[str, Any], label: str) -> Key:
    metadata = _mapping(document.get("metadata"))
    return label, str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

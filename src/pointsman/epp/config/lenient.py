"""What the Go picker lets pass in parameters although it is not as documented: taken here too, with a warning.

Go's JSON reader does not mind upper and lower case in names, and several of its plugins take the default for a number
that is not above zero. Whoever reads the warning knows what to write.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pointsman.core.values import item_type, join, names_at


def lenient(kind: type[Any], raw: Mapping[str, Any], *, path: str) -> tuple[dict[str, Any], list[str]]:
    """Return parameters as their type spells them, and what should be changed in them."""
    warnings: list[str] = []
    return _fields(kind, raw, path=path, warnings=warnings), warnings


def _same(value: Any) -> Any:
    return value


def _tokens(characters: Any) -> Any:
    return max(1, characters // 4) if type(characters) is int else characters


_PREFIX_INDEX: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "autoTune": ("autoTune", _same),
    "blockSizeTokens": ("blockSizeTokens", _same),
    "blockSize": ("blockSizeTokens", _tokens),
    "hashBlockSize": ("blockSizeTokens", _tokens),
    "maxPrefixBlocksToMatch": ("maxPrefixBlocksToMatch", _same),
    "maxPrefixTokensToMatch": ("maxPrefixTokensToMatch", _same),
    "lruCapacityPerServer": ("lruCapacityPerServer", _same),
}
_MOVED = {"prefix-cache-scorer": ("approx-prefix-cache-producer", _PREFIX_INDEX)}


def moved(type_name: str, raw: Mapping[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return parameters without those that belong to another plugin since some release, that plugin, and its own.

    A scorer of prefixes had the index in it until the producer was split off; a block was so many characters then.
    """
    other, names = _MOVED.get(type_name, ("", {}))
    taken = {names[key][0]: names[key][1](value) for key, value in raw.items() if key in names}
    if "maxPrefixBlocksToMatch" in taken:
        taken.setdefault("maxPrefixTokensToMatch", 0)  # or the number of blocks would not be looked at
    return {key: value for key, value in raw.items() if key not in names}, other if taken else "", taken


def _fields(kind: Any, raw: Mapping[str, Any], *, path: str, warnings: list[str]) -> dict[str, Any]:
    known = names_at(kind, ())
    found: dict[str, Any] = {}
    for name, value in raw.items():
        spelled = _spelled(name, known) if known else name
        where = join(path, [name])
        if spelled != name:
            if spelled in raw:
                continue  # the right spelling is there too, and counts
            warnings.append(f"{where}: upper and lower case are wrong: write {spelled}")
        if _means_default(kind, spelled, value):
            warnings.append(f"{where}: {value!r} is not above 0, so the default is used: remove it")
            continue
        found[spelled] = _value(item_type(kind, spelled), value, path=where, warnings=warnings)
    return found


def _value(kind: Any, value: Any, *, path: str, warnings: list[str]) -> Any:
    if isinstance(value, dict) and names_at(kind, ()):
        return _fields(kind, value, path=path, warnings=warnings)
    if isinstance(value, list):
        inner = item_type(kind, 0)
        return [_value(inner, each, path=join(path, [at]), warnings=warnings) for at, each in enumerate(value)]
    return value


def _spelled(name: str, known: list[str]) -> str:
    if name in known:
        return name
    folded = name.casefold()
    return next((each for each in known if each.casefold() == folded), name)


def _means_default(kind: Any, name: str, value: Any) -> bool:
    """Return whether a number means its default, as a type says of its fields."""
    fields: Mapping[str, Any] = getattr(kind, "model_fields", {})
    own = next((python for python, field in fields.items() if name in {python, field.alias}), "")
    return own in getattr(kind, "or_default", ()) and type(value) in {int, float} and value <= 0

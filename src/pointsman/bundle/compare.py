"""Two sets of objects → what differs, field by field: an upgrade before it is made, or what another tool has lost."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pointsman.bundle.model import Object, identity

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of one object, or a whole object, that was added, removed or changed."""

    sign: str
    what: str

    def __str__(self) -> str:
        return f"{self.sign} {self.what}"


def compare(old: Iterable[Object], new: Iterable[Object]) -> list[Difference]:
    """Return what differs, by kind, namespace and name; objects in either order are the same objects."""
    before, after = ({identity(each): each for each in side} for side in (old, new))
    found: list[Difference] = []
    for key in sorted(before.keys() | after.keys()):
        name = " ".join(filter(None, (key[0], f"{key[1]}/{key[2]}".lstrip("/"))))
        if key not in after:
            found.append(Difference("-", name))
        elif key not in before:
            found.append(Difference("+", name))
        else:
            found.extend(_fields(before[key], after[key], name))
    return found


def _fields(old: Any, new: Any, path: str) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            where = f"{path} .{key}" if " ." not in path else f"{path}.{key}"
            if key not in new:
                yield Difference("-", f"{where}: {_short(old[key])}")
            elif key not in old:
                yield Difference("+", f"{where}: {_short(new[key])}")
            else:
                yield from _fields(old[key], new[key], where)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _fields(one, other, f"{path}[{at}]")
    elif type(old) is not type(new) or old != new:
        yield Difference("~", f"{path}: {_short(old)} → {_short(new)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"

"""Command lines of others, changed: a flag's value, a line without some flags. Both `--a b` and `--a=b` are read."""

from collections.abc import Collection, Mapping, Sequence

_TRUE = ("true", "t", "1")


def value(arguments: Sequence[str], name: str) -> str:
    """Return the last value of a flag, or nothing."""
    found = ""
    for at, word in enumerate(arguments):
        flag, equals, said = word.partition("=")
        if flag == f"--{name}":
            found = said if equals else arguments[at + 1] if at + 1 < len(arguments) else ""
    return found


def switch(arguments: Sequence[str], name: str, *, default: bool) -> bool:
    """Return what the last mention of a switch says: `--name`, `--name=true` or `--name=false`."""
    found = default
    for word in arguments:
        flag, equals, said = word.partition("=")
        if flag == f"--{name}":
            found = not equals or said.lower() in _TRUE
    return found


def without(arguments: Sequence[str], names: Collection[str], *, switches: Collection[str] = ()) -> tuple[str, ...]:
    """Return the arguments without these flags and their values, and without these switches, which have none."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, _ = word.removeprefix("--").partition("=")
        gone = word.startswith("--") and flag in (*names, *switches)
        if gone and not equals and flag not in switches:
            next(words, None)
        elif not gone:
            kept.append(word)
    return tuple(kept)


def relocated(arguments: Sequence[str], *, paths: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments with paths of a container as they are on this machine."""
    return tuple(paths.get(word, word) for word in arguments)


def expanded(arguments: Sequence[str], *, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments with `$(NAME)` replaced, as the kubelet does it."""
    result = []
    for word in arguments:
        for name, text in variables.items():
            word = word.replace(f"$({name})", text)
        result.append(word)
    return tuple(result)

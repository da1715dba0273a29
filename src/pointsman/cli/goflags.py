"""Command lines as Go programs take them: what manifests for the Go picker rely on and our own parser would refuse.
Pure.

- The last of a repeated flag counts; of a flag that is a list all count.
- Arguments that are empty strings are ignored: a manifest's template leaves one where a condition did not hold.
- Releases of before 2026 spelled flags `--poolName`; Go's own parser takes `-pool-name` for `--pool-name`.
"""

import re
from collections.abc import Collection, Sequence

_LONG = re.compile(r"--?([A-Za-z][-A-Za-z0-9]+)")
_LISTS = frozenset(("--endpoint-target-ports", "--tls-cipher-suites"))  # with commas between
_MANY = frozenset(("--plugin",))  # one at a time
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def normalized(argv: Sequence[str], *, switches: Collection[str]) -> list[str]:
    """Return the command line as our parser takes it; `switches` are the flags that have no value of their own."""
    return last_of_each(without_blanks([_spelled(word) for word in argv], switches=switches))


def without_blanks(argv: Sequence[str], *, switches: Collection[str]) -> list[str]:
    """Return the command line without empty arguments; one that is the value of a flag stays."""
    kept: list[str] = []
    takes_value = False
    for word in argv:
        if word or takes_value:
            kept.append(word)
        is_flag = word.startswith("-") and "=" not in word and not takes_value
        takes_value = is_flag and word.lstrip("-") not in switches
    return kept


def last_of_each(argv: Sequence[str]) -> list[str]:
    """Return the command line with the last occurrence of each flag, and of a list with all that was given."""
    pairs: list[list[str]] = []
    for word in argv:
        follows = pairs and pairs[-1][0].startswith("-") and len(pairs[-1]) == 1 and "=" not in pairs[-1][0]
        if follows and not word.startswith("-"):
            pairs[-1].append(word)
        else:
            pairs.append([word])
    last = {_name(pair): at for at, pair in enumerate(pairs)}
    kept = [pair for at, pair in enumerate(pairs) if _name(pair) in {"", *_MANY} or last[_name(pair)] == at]
    return [word for pair in kept for word in (_joined(pair, pairs) if _name(pair) in _LISTS else pair)]


def _name(pair: Sequence[str]) -> str:
    """Return the flag; nothing for a word that is none."""
    return pair[0].partition("=")[0] if pair[0].startswith("-") else ""


def _joined(pair: Sequence[str], pairs: Sequence[Sequence[str]]) -> list[str]:
    """Return one flag with the values of all of its name."""
    same = [each for each in pairs if _name(each) == _name(pair)]
    values = [each[1] if len(each) > 1 else each[0].partition("=")[2] for each in same]
    return [f"{_name(pair)}={','.join(values)}"]


def _spelled(word: str) -> str:
    """Return a flag in our spelling; anything else as it is."""
    flag, equals, value = word.partition("=")
    found = _LONG.fullmatch(flag)
    if found is None:
        return word
    return f"--{without_humps(found[1])}{equals}{value}"


def without_humps(flag: str) -> str:
    """Return a flag's name as it is spelled today."""
    return _HUMP.sub("-", flag).lower()

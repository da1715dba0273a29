"""Quantities as Kubernetes writes them: `500m`, `1Gi`, `1e3`, `2`. Only what is needed to compare two of them.

What can be written is bounded, by the pattern that the API server checks too: an exponent of eight digits makes a
number that nobody can write out, and arithmetic on it takes minutes. Two digits of exponent and 32 characters in all
leave every amount that a cluster has, a thousand million times over.
"""

import re
from decimal import Context, Decimal

LONGEST = 32
PATTERN = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2}|[kMGTPE]|[KMGTPE]i|[mun])?$"
TOO_LARGE = r"[eE][+-]?[0-9]{3}"
"""What is in a text that has such an exponent."""

_SPLIT = re.compile(r"^([+0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Enough digits for 32 characters times 2 to the 60th, so that nothing is rounded and a comparison is exact.
_EXACT = Context(prec=64, Emax=999, Emin=-999)


def amount(quantity: str) -> Decimal:
    """Return how much a quantity is.

    Raises ValueError when it is none, or one that is longer or larger than a quantity can be.
    """
    if len(quantity) > LONGEST or not re.match(PATTERN, quantity):
        raise ValueError(f"{quantity[: LONGEST + 1]!r} is not a quantity such as 500m, 1Gi or 1e3")
    found = _SPLIT.match(quantity)
    assert found is not None
    number, unit = Decimal(found[1]), found[2]
    return _EXACT.multiply(number, 2 ** _BINARY[unit]) if unit in _BINARY else number.scaleb(_DECIMAL[unit], _EXACT)

"""Quantities as Kubernetes writes them: `500m`, `1Gi`, `1e3`, `2`. Only what is needed to compare two of them."""

import re
from decimal import Decimal

PATTERN = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[kMGTPE]|[KMGTPE]i|[mun])?$"

_SPLIT = re.compile(r"^([+0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def amount(quantity: str) -> Decimal:
    """Return how much a quantity is; it must match `PATTERN`."""
    found = _SPLIT.match(quantity)
    if found is None:
        raise ValueError(f"{quantity!r} is not a quantity such as 500m or 1Gi")
    number, unit = Decimal(found[1]), found[2]
    return number * 2 ** _BINARY[unit] if unit in _BINARY else number.scaleb(_DECIMAL[unit])

"""Quantities compare as Kubernetes compares them."""

from decimal import Decimal

import pytest

from pointsman.core.quantities import amount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("2", "2"), ("500m", "0.5"), ("1Ki", "1024"), ("1k", "1000"), ("1e3", "1000"), ("1E", "1e18")),
        *(("+.5", "0.5"), ("100n", "1e-7"), ("5.Gi", str(5 * 2**30)), ("1E-2", "0.01"), ("3u", "3e-6")),
        ("2Ei", str(2**61)),
    ],
)
def test_amount(text: str, expected: str) -> None:
    assert amount(text) == Decimal(expected)


def test_nonsense_is_named() -> None:
    with pytest.raises(ValueError, match="'lots' is not a quantity such as 500m"):
        amount("lots")

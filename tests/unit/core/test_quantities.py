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


@pytest.mark.parametrize("text", ["lots", "", "1e100", "1e-100", "1e99999999", "1e999999", "9" * 33, "1" * 10**6])
def test_nonsense_is_named_and_not_computed(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity such as 500m") as caught:
        amount(text)
    assert len(str(caught.value)) < 120


def test_the_longest_are_told_apart_to_the_last_digit() -> None:
    assert amount("9" * 30 + "Ei") < amount("9" * 30 + "Ei") + 1
    assert amount("1" * 29 + "e99") > amount("1" * 28 + "0e99") > amount("1e-99") > 0

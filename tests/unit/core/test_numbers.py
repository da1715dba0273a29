"""Numbers are bounded before they are converted."""

import json
import math

import pytest

from pointsman.core.numbers import SAFE, bounded_int, is_count, real, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("65535", 65_535), (b"80", 80), ("00080", 80), ("65536", None), ("9" * 5000, None), (b"9" * 5000, None),
     ("", None), ("-1", None), ("+1", None), (" 1", None), ("1_0", None), ("²", None), ("٣", None), ("1.0", None)],
)  # fmt: skip
def test_whole_numbers_up_to_a_bound(text: str | bytes, number: int | None) -> None:
    assert whole(text, most=65_535) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.5", 1.5), (b"-2e3", -2000.0), ("1e400", None), ("nan", None), ("inf", None), ("9" * 5000, None), ("٣", None),
     ("", None), ("x", None)],
)  # fmt: skip
def test_real_numbers_that_are_finite(text: str | bytes, number: float | None) -> None:
    assert real(text) == number


@pytest.mark.parametrize("value", [-1, SAFE + 1, 10**4000, True, 1.0, "1", None])
def test_what_is_no_count(value: object) -> None:
    assert not is_count(value)
    assert is_count(0) and is_count(SAFE)


def test_json_with_numbers_of_any_length_is_read() -> None:
    text = f"[1, -1, {'9' * 5000}, -{'9' * 5000}, {'9' * 5000}.5, 1e999]"
    assert json.loads(text, parse_int=bounded_int) == [1, -1, math.inf, -math.inf, math.inf, math.inf]

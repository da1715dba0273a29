"""Block hashes against published vectors, an independent CBOR writer, and reference values of the router's scheme."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.sim.text import hashing


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_fnv1a_64(data: bytes, value: int) -> None:
    assert hashing.fnv1a64(data) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (23, "17"), (24, "1818"), (255, "18ff"), (256, "190100"), (1_000_000, "1a000f4240"),
        (1_000_000_000_000, "1b000000e8d4a51000"), (2**64 - 1, "1bffffffffffffffff"),
    ],
)  # fmt: skip
def test_cbor_numbers_are_the_examples_of_rfc_8949(value: int, encoded: str) -> None:
    assert hashing.cbor_uint(value).hex() == encoded


@pytest.mark.parametrize(
    ("seed", "keys"),
    [
        ("", [9540012594951042066, 16921089685996993662]),
        ("42", [3239622172847516705, 18365376266021390534]),
    ],
)
def test_chains_have_the_values_of_the_reference(seed: str, keys: list[int]) -> None:
    start = hashing.root("test-model", seed=seed)
    assert hashing.chain(list(range(1, 33)), start=start, block_size=16) == keys


@given(st.lists(st.integers(0, 2**32 - 1), max_size=60), st.integers(1, 9), st.integers(0, 60))
def test_a_longer_prompt_begins_with_the_keys_of_a_shorter(ids: list[int], size: int, cut: int) -> None:
    start = hashing.root("m")
    whole = hashing.chain(ids, start=start, block_size=size)
    part = hashing.chain(ids[:cut], start=start, block_size=size)
    assert len(whole) == len(ids) // size
    assert whole[: len(part)] == part

"""Protobuf against the official encoder, and against bytes that are no message."""

import contextlib

import pytest
from google.protobuf import struct_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from pointsman.sim.failures import Refusal
from pointsman.sim.grpc.protobuf import decode, encode, numbers
from pointsman.wire.protobuf import varint


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_the_official_library_does(value: int) -> None:
    official = wrappers_pb2.UInt64Value(value=value).SerializeToString()
    assert encode((1, value)) == official
    assert list(decode(official)) == ([(1, value)] if value else [])


@given(st.text())
def test_texts_are_written_as_the_official_library_does(text: str) -> None:
    official = wrappers_pb2.StringValue(value=text).SerializeToString()
    assert encode((1, text)) == official


def test_doubles_are_written_as_the_official_library_does_and_skipped_when_read() -> None:
    official = wrappers_pb2.DoubleValue(value=1.5).SerializeToString()
    assert encode((1, 1.5)) == official
    assert list(decode(official + encode((2, 7)))) == [(2, 7)]
    assert list(decode(struct_pb2.Value(number_value=2.0).SerializeToString())) == []


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_packed_numbers_come_back(values: list[int]) -> None:
    fields = dict(decode(encode((1, values))))
    assert numbers(fields.get(1, b"")) == values
    assert numbers(5) == [5]


@given(st.binary(max_size=40))
def test_fuzz_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(Refusal):
        list(decode(data))


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x0b", b"\x08" + b"\xff" * 11, varint(1 << 70)])
def test_what_is_cut_off_or_unknown_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="not valid protobuf"):
        list(decode(data))

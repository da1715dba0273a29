"""The hand-written protobuf reader against the official runtime."""

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.protobuf import Malformed, Value, decode_struct, encode_struct, fields, read_varint, varint

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STRUCTS = st.dictionaries(st.text(), VALUES, max_size=4)


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


@given(STRUCTS)
def test_structs_are_read_and_written_as_protobuf_does(values: dict[str, Value]) -> None:
    official = struct_pb2.Struct()
    official.update(values)
    data = official.SerializeToString()
    assert decode_struct(data, 0, len(data)) == values
    assert struct_pb2.Struct.FromString(encode_struct(values)) == official


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_malformed(data: bytes) -> None:
    try:
        for _, _, start, stop in fields(data, 0, len(data)):
            assert 0 <= start <= stop <= len(data)
    except Malformed:
        pass


def test_nesting_is_bounded() -> None:
    deep: Value = "x"
    for _ in range(200):
        deep = [deep]
    data = encode_struct({"a": deep})
    with pytest.raises(Malformed, match="deeply"):
        decode_struct(data, 0, len(data))

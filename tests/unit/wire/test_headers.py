"""Which requests are malformed (RFC 9113 §8.2–8.3), and what the cache may not do."""

import pytest
from hpack import Encoder
from tests.unit.wire.peers import GRPC_HEADERS

from pointsman.wire.frames import Code, ConnectionFault
from pointsman.wire.headers import HeaderReader
from pointsman.wire.limits import Limits


def read(*fields: tuple[str, str]) -> str:
    return HeaderReader(limits=Limits()).read(Encoder().encode(list(fields))).malformed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param(GRPC_HEADERS, "", id="fine"),
        pytest.param(GRPC_HEADERS[1:], ":method is missing", id="no method"),
        pytest.param([(":path", ""), *GRPC_HEADERS[:2]], ":path is missing", id="empty path"),
        pytest.param([*GRPC_HEADERS, (":path", "/")], "pseudo-header after a regular header", id="late pseudo"),
        pytest.param([(":method", "GET"), *GRPC_HEADERS], "pseudo-header twice", id="twice"),
        pytest.param([(":status", "200"), *GRPC_HEADERS], "unknown pseudo-header", id="a response's"),
        pytest.param([*GRPC_HEADERS, ("X-Upper", "1")], "upper-case or empty header name", id="upper case"),
        pytest.param([*GRPC_HEADERS, ("connection", "close")], "connection-specific header", id="connection"),
        pytest.param([*GRPC_HEADERS[:-1], ("te", "gzip")], "te other than trailers", id="te"),
        pytest.param([*GRPC_HEADERS, ("content-length", "x")], "content-length is not a number", id="length"),
    ],
)
def test_malformed_requests(fields: list[tuple[str, str]], problem: str) -> None:
    assert read(*fields) == problem


def test_garbage_ends_the_connection_because_the_table_is_lost() -> None:
    with pytest.raises(ConnectionFault) as caught:
        HeaderReader(limits=Limits()).read(b"\xff\xff\xff\xff\xff\xff")
    assert caught.value.code == Code.COMPRESSION_ERROR


def test_growing_the_table_after_giving_it_up_is_an_error() -> None:
    reader = HeaderReader(limits=Limits())
    reader.acknowledged()
    encoder = Encoder()
    encoder.header_table_size = 0
    reader.read(encoder.encode(GRPC_HEADERS))
    encoder.header_table_size = 4096
    with pytest.raises(ConnectionFault):
        reader.read(encoder.encode(GRPC_HEADERS))


def test_the_cache_is_bounded() -> None:
    reader = HeaderReader(limits=Limits())
    reader.acknowledged()
    encoder = Encoder()
    encoder.header_table_size = 0
    for n in range(2000):
        assert reader.read(encoder.encode([*GRPC_HEADERS, ("x-n", str(n))])).fields[b"x-n"] == str(n).encode()
    assert len(reader._cache) <= 256

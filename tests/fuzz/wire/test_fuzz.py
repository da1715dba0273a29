"""Random and mutated frames: `receive` never raises, never answers INTERNAL_ERROR, never touches another connection.

`POINTSMAN_FUZZ_EXAMPLES` (set by `make fuzz`) raises the number of examples.
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire.peers import GRPC_HEADERS, Client, data_frame
from tests.unit.wire.test_grpc import GrpcClient, calls, framed

from pointsman.wire.frames import PREFACE, Code, FrameKind, frame
from pointsman.wire.frames import settings as settings_frame

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "300"))
FUZZ = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))

STREAM_IDS = st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1])
FRAMES = st.builds(
    frame, st.integers(0, 12), st.integers(0, 255), STREAM_IDS, st.binary(max_size=64) | st.binary(max_size=20_000)
)
GOOD_BLOCK = Client().encoder.encode(GRPC_HEADERS)
LIKELY = st.one_of(
    st.builds(lambda n, end: frame(FrameKind.HEADERS, 4 | end, n, GOOD_BLOCK), STREAM_IDS, st.sampled_from([0, 1])),
    st.builds(
        lambda n, body, end: data_frame(n, framed(body), end=end), STREAM_IDS, st.binary(max_size=50), st.booleans()
    ),
    st.builds(
        lambda n, code: frame(FrameKind.RST_STREAM, 0, n, code.to_bytes(4, "big")), STREAM_IDS, st.integers(0, 20)
    ),
    st.builds(
        lambda n, by: frame(FrameKind.WINDOW_UPDATE, 0, n, by.to_bytes(4, "big")), STREAM_IDS, st.integers(0, 2**31)
    ),
    st.builds(
        lambda key, value: frame(FrameKind.SETTINGS, 0, 0, key.to_bytes(2, "big") + value.to_bytes(4, "big")),
        st.integers(0, 9),
        st.integers(0, 2**32 - 1),
    ),
    FRAMES,
)


def check(client: Client, data: bytes) -> None:
    for each in client.send(data):
        if each.kind == FrameKind.GOAWAY:
            assert each.code != Code.INTERNAL_ERROR, each.payload[8:]
            assert client.connection.closing or each.code == Code.NO_ERROR


def after(client: GrpcClient) -> None:
    """Nothing may be left once the connection is gone."""
    client.connection.lost()
    assert all(call.closings == 1 for call in calls)
    assert client.budget.held == 0


@FUZZ
@given(st.lists(LIKELY, max_size=30), st.integers(0, 40))
def test_fuzz_frames_in_any_order_and_any_cut(frames: list[bytes], cut: int) -> None:
    bystander = GrpcClient()
    bystander.start()
    mine = list(calls)
    client = GrpcClient()
    calls_before = list(calls)
    assert calls_before == []
    data = b"".join(frames)
    step = max(1, len(data) * cut // 40)
    for at in range(0, len(data), step):
        check(client, data[at : at + step])
    after(client)
    assert [call.closings for call in mine] == [0]
    assert bystander.read(data_frame(1, framed(b"still here")))[0] == [b"still here"]


@FUZZ
@given(st.binary(max_size=400))
def test_fuzz_bytes_after_the_preface(data: bytes) -> None:
    client = GrpcClient()
    check(client, data)
    after(client)


@FUZZ
@given(st.data())
def test_fuzz_mutated_conversations(data: st.DataObject) -> None:
    client = GrpcClient()
    client.connection.lost()
    client = GrpcClient()
    talk = bytearray(
        frame(FrameKind.HEADERS, 4, 1, GOOD_BLOCK)
        + data_frame(1, framed(b"one") + framed(b"two" * 300))
        + settings_frame({})
        + frame(FrameKind.HEADERS, 0, 3, GOOD_BLOCK[:10])
        + frame(FrameKind.CONTINUATION, 4, 3, GOOD_BLOCK[10:])
        + data_frame(3, framed(b"x"), end=True)
        + frame(FrameKind.PING, 0, 0, b"12345678")
        + data_frame(1, b"", end=True)
    )
    for _ in range(data.draw(st.integers(1, 6))):
        talk[data.draw(st.integers(0, len(talk) - 1))] = data.draw(st.integers(0, 255))
    check(client, bytes(talk))
    after(client)


@FUZZ
@given(st.binary(max_size=60))
def test_fuzz_bytes_instead_of_the_preface(data: bytes) -> None:
    client = Client(greet=False)
    check(client, data)
    check(client, PREFACE)

"""The official gRPC client: many streams, large messages, health, and what it is told when something is wrong."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.waiting import until, wait_until
from tests.wire.picker import RunningPicker, running_picker

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"


@pytest.fixture(scope="module", params=[False, True], ids=["plaintext", "tls"])
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningPicker]:
    with running_picker(tmp_path_factory.mktemp("picker"), tls=request.param) as running:
        yield running


@pytest.fixture
def picker(shared: RunningPicker) -> RunningPicker:
    """Return a picker that has forgotten the test before."""
    wait_until(lambda: shared.inflight == 0)
    return shared


def headers(*, end: bool = False, request_id: str = "r") -> pb.ProcessingRequest:
    entries = [base_pb2.HeaderValue(key="x-request-id", raw_value=request_id.encode())]
    return pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries), end_of_stream=end)
    )


def body(size: int) -> pb.ProcessingRequest:
    return pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x" * size, end_of_stream=True))


async def test_a_thousand_streams_at_once(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        stub = rpc.ExternalProcessorStub(channel)
        calls = [stub.Process() for _ in range(1000)]
        for n, call in enumerate(calls):
            await call.write(headers(request_id=str(n)))
        picks = [str((await call.read()).dynamic_metadata) for call in calls]
        assert all("x-gateway-destination-endpoint" in pick for pick in picks)
        rows = picker.get("/debug/endpoints")["endpoints"]
        assert [row["inflight"] for row in rows] == [500, 500], "every pick saw all picks before it"
        for call in calls:
            await call.done_writing()
        codes = [await call.code() for call in calls]
        assert set(codes) == {grpc.StatusCode.OK}
    assert picker.inflight == 0


@pytest.mark.parametrize("size", [0, 1, 62_000, 62_001, 1 << 20, (4 << 20) - 100])
async def test_bodies_come_back_whole(picker: RunningPicker, size: int) -> None:
    async def talk() -> AsyncIterator[pb.ProcessingRequest]:
        yield headers()
        yield body(size)

    async with picker.channel() as channel:
        replies = [reply async for reply in rpc.ExternalProcessorStub(channel).Process(talk())]
    chunks = [reply.request_body.response.body_mutation.streamed_response for reply in replies[1:]]
    assert sum(len(chunk.body) for chunk in chunks) == size
    assert [chunk.end_of_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_message_over_the_limit_is_refused_and_the_connection_lives(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        stub = rpc.ExternalProcessorStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.Process(iter([headers(), body(4 << 20)])):
                pass
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len([reply async for reply in stub.Process(iter([headers(end=True)]))]) == 1
    assert picker.inflight == 0


async def test_a_cancelled_call_frees_its_place(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        call = rpc.ExternalProcessorStub(channel).Process()
        await call.write(headers())
        await call.read()
        assert picker.inflight == 1
        call.cancel()
        await until(lambda: picker.inflight == 0)


async def test_health(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "liveness", "readiness", EXT_PROC, "inference-extension"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, name
        listed = await stub.List(health_pb2.HealthListRequest())
        assert set(listed.statuses) == {"", "liveness", "readiness", EXT_PROC}


async def test_watch_tells_when_the_picker_drains(tmp_path: Path) -> None:
    with running_picker(tmp_path, drain="3s") as picker:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{picker.health_port}")
        keeper = picker.channel()  # a peer that stays, so that draining takes its time
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=EXT_PROC))
        await health_pb2_grpc.HealthStub(keeper).Check(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        picker.process.terminate()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        live = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="liveness"))
        assert live.status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        await channel.close()
        await keeper.close()


async def test_an_unknown_method_is_unimplemented(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/no.such.Service/Method", request_serializer=bytes)(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_that_is_none_is_told_so(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        method = channel.stream_stream(
            f"/{EXT_PROC}/Process", request_serializer=bytes, response_deserializer=pb.ProcessingResponse.FromString
        )
        call = method(iter([b"\xff\xff\xff"]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_gzip_from_the_client(picker: RunningPicker) -> None:
    async with picker.channel() as channel:
        stub = rpc.ExternalProcessorStub(channel)
        call = stub.Process(iter([headers(), body(100_000)]), compression=grpc.Compression.Gzip)
        replies = [reply async for reply in call]
    assert sum(len(r.request_body.response.body_mutation.streamed_response.body) for r in replies) == 100_000

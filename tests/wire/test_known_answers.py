"""How the picker refuses, through the official gRPC client: exact status, body and drop reason, and hostile bodies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.wire.picker import RunningPicker, running_picker

UNMARSHAL = "inference error: BadRequest - error unmarshaling request bodyMap: "
NO_MODEL = "inference error: BadRequest - model not found in request body"
NO_ENDPOINTS = "inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"


@pytest.fixture(scope="module")
def picker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPicker]:
    with running_picker(tmp_path_factory.mktemp("picker"), "--max-body=1MiB", config="") as running:
        yield running


def messages(
    body: bytes | None, *, path: str = "/v1/completions", subset: list[str] | None = None, step: int = 0
) -> Iterator[pb.ProcessingRequest]:
    rows = {":path": path, "x-request-id": "test-request-id", "hi": "mom"}
    entries = [base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in rows.items()]
    first = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries), end_of_stream=body is None)
    )
    if subset is not None:
        hint = first.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({"x-gateway-destination-endpoint-subset": subset})
    yield first
    if body is not None:
        size = step or max(1, len(body))
        for at in range(0, len(body), size):
            yield pb.ProcessingRequest(request_body=pb.HttpBody(body=body[at : at + size]))
        yield pb.ProcessingRequest(request_body=pb.HttpBody(end_of_stream=True))


async def talk(picker: RunningPicker, requests: Iterator[pb.ProcessingRequest]) -> list[pb.ProcessingResponse]:
    async with picker.channel() as channel:
        return [reply async for reply in rpc.ExternalProcessorStub(channel).Process(requests)]


def refusal(replies: list[pb.ProcessingResponse]) -> tuple[int, str, str]:
    (reply,) = replies
    headers = {o.header.key: o.header.raw_value.decode() for o in reply.immediate_response.headers.set_headers}
    reason = headers.get("x-llm-d-request-dropped-reason", "")
    return reply.immediate_response.status.code, reply.immediate_response.body.decode(), reason


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(
            b"no healthy upstream",
            400,
            UNMARSHAL + "invalid character 'o' in literal null (expecting 'u')",
            id="invalid JSON",
        ),
        pytest.param(b'{"model":"m"', 400, UNMARSHAL + "unexpected end of JSON input", id="cut"),
        pytest.param(
            b'["model"]',
            400,
            UNMARSHAL + "json: cannot unmarshal array into Go value of type map[string]interface {}",
            id="an array",
        ),
        pytest.param(b'{"prompt":"x"}', 400, NO_MODEL, id="no model"),
        pytest.param(b'{"model":7,"prompt":"x"}', 400, NO_MODEL, id="a number for a model"),
        pytest.param(b"null", 400, NO_MODEL, id="null"),
        pytest.param(
            b'{"model":"m","prompt":"' + b"x" * (1 << 20) + b'"}',
            413,
            "inference error: RequestEntityTooLarge - the request body is larger than the 1048576 bytes "
            "that --max-body allows",
            id="over the limit",
        ),
        pytest.param(b"[" * 20_000, 400, UNMARSHAL + "exceeded max depth", id="nested without end"),
    ],
)
async def test_refusals(picker: RunningPicker, body: bytes, status: int, words: str) -> None:
    assert refusal(await talk(picker, messages(body))) == (status, words, "")
    assert refusal(await talk(picker, messages(body, step=65_000))) == (status, words, ""), "in pieces"
    assert picker.inflight == 0


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:1"]], ids=["empty", "of others"])
async def test_a_subset_that_leaves_nobody(picker: RunningPicker, subset: list[str]) -> None:
    replies = await talk(picker, messages(b'{"model":"m"}', subset=subset))
    assert refusal(replies) == (503, NO_ENDPOINTS, "rejected-no-endpoints")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"m","prompt":"x"}', id="plain"),
        pytest.param(b'{"model":"a","prompt":"x","model":"b"}', id="two models"),
        pytest.param(b'{"prompt":"' + b"x" * 1_000_000 + b'","model":"m"}', id="model after 1 MB"),
        pytest.param(b'{"model":"m","prompt":"\xff\xfe\xfd"}', id="not UTF-8"),
        pytest.param(b'{"model":"m","prompt":{"a":[1,2,{"b":7}]},"messages":3}', id="numbers where text belongs"),
        pytest.param(b'{"x":' + b"[" * 9000 + b"]" * 9000 + b',"model":"m"}', id="deep but legal"),
        pytest.param(b'{"model":"m","prompt":"' + b"x" * ((1 << 20) - 25) + b'"}', id="at the limit"),
    ],
)
async def test_bodies_that_pass_come_back_byte_for_byte(picker: RunningPicker, body: bytes) -> None:
    assert len(body) <= 1 << 20
    for step in (0, 65_000, 999_983):
        replies = await talk(picker, messages(body, step=step))
        assert replies[0].HasField("request_headers")
        chunks = [reply.request_body.response.body_mutation.streamed_response for reply in replies[1:]]
        assert b"".join(chunk.body for chunk in chunks) == body
        assert chunks[-1].end_of_stream


async def test_chunk_borders_at_every_byte(picker: RunningPicker) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"h\\u00e9llo \xc3\xa9"}]}'
    replies = await talk(picker, messages(body, step=1))
    chunks = [reply.request_body.response.body_mutation.streamed_response.body for reply in replies[1:]]
    assert b"".join(chunks) == body


async def test_an_empty_pool(tmp_path: Path) -> None:
    with running_picker(tmp_path, config="", endpoints="endpoints: []\n") as picker:
        replies = await talk(picker, messages(b'{"model":"m"}'))
        assert refusal(replies) == (503, NO_ENDPOINTS, "rejected-no-endpoints")
        replies = await talk(picker, messages(None))
        words = "inference error: Internal - no pods available in datastore"
        assert refusal(replies) == (500, words, "rejected-internal")

"""Spans as a collector receives them, read with OpenTelemetry's own classes."""

import base64
import json
import random
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest
from google.protobuf import json_format

from pointsman.core.errors import UserError
from pointsman.core.http import Request as HttpRequest
from pointsman.core.http import Response, Server
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.metrics.tracing import Exporter, Tracer, exporter_of
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Member, Reservation
from pointsman.epp.request.request import Request

pb: Any = import_module("opentelemetry.proto.trace.v1.trace_pb2")  # generated without types
METRICS = PickerMetrics()  # not looked at here
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.status = 200
        self.port = 0

    def __call__(self, request: HttpRequest) -> Response:
        self.requests.append(request)
        return Response(self.status, b"{}")

    @property
    def spans(self) -> list[Any]:
        documents = [json.loads(request.body) for request in self.requests]
        found = [span for document in documents for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        return [official(span) for span in found]


def official(span: dict[str, Any]) -> Any:
    """Read a span with the official class; OTLP's JSON has ids in hex where protobuf's has base64."""
    for key in ("traceId", "spanId", "parentSpanId"):
        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(span, pb.Span())


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    async with Server() as server:
        made.port = (await server.listen(made, host="127.0.0.1", port=0)).port
        yield made


def tracer(port: int, *, ratio: float = 1.0) -> Tracer:
    exporter = Exporter(endpoint=f"http://127.0.0.1:{port}/v1/traces", ratio=ratio, headers=(("x-key", "k"),))
    return Tracer(exporter, rng=random.Random(5))


def serve(made: Tracer, *, traceparent: str = "", status: int = 200) -> str:
    """Let a request pass, and return what its model server is told."""
    member = Member(Endpoint(name="pod", address="10.0.0.1", port=8000))
    headers = {"traceparent": traceparent} if traceparent else {}
    request = Request(id="r-1", headers=headers, model="m", target_model="t")
    books = Bookkeeper(METRICS, clock=time.monotonic, tracer=made)
    reservation = Reservation(member)
    meter = reservation.meter = books.picked(request, member.view, since=time.monotonic() - 0.001)
    reservation.answered(status)
    reservation.release()
    return meter.span.traceparent if meter.span is not None else ""


async def test_a_request_is_two_spans_within_the_callers_trace(collector: Collector) -> None:
    made = tracer(collector.port)
    told = serve(made, traceparent=CALLER)
    await made.flush()
    decision, request = collector.spans
    assert (request.name, decision.name) == ("gateway.request", "gateway.request_orchestration")
    assert {span.trace_id.hex() for span in (request, decision)} == {CALLER.split("-")[1]}
    assert request.parent_span_id.hex() == CALLER.split("-")[2]
    assert decision.parent_span_id == request.span_id
    assert told == f"00-{CALLER.split('-')[1]}-{request.span_id.hex()}-01"
    assert request.kind == pb.Span.SPAN_KIND_SERVER
    assert request.start_time_unix_nano < decision.end_time_unix_nano <= request.end_time_unix_nano
    values = {one.key: one.value.string_value or one.value.int_value for one in request.attributes}
    assert values["llm_d.endpoint"] == "10.0.0.1:8000"
    assert values["http.response.status_code"] == 200
    assert request.status.code == pb.Status.STATUS_CODE_UNSET
    (sent,) = collector.requests
    assert (sent.method, sent.path, sent.headers[b"x-key"]) == ("POST", "/v1/traces", b"k")
    document = json.loads(sent.body)
    assert document["resourceSpans"][0]["resource"]["attributes"][0]["value"] == {"stringValue": "llm-d-epp"}
    assert made.exported == 2


async def test_an_error_is_one(collector: Collector) -> None:
    made = tracer(collector.port)
    serve(made, status=503)
    await made.flush()
    assert collector.spans[1].status.code == pb.Status.STATUS_CODE_ERROR
    assert collector.spans[1].parent_span_id == b""


@pytest.mark.parametrize(
    ("traceparent", "traced"),
    [
        pytest.param(CALLER, True, id="the caller traces"),
        pytest.param(CALLER[:-2] + "00", False, id="the caller does not"),
        pytest.param("", False, id="the sampler does not"),
        pytest.param("00-" + "0" * 32 + "-b7ad6b7169203331-01", False, id="not a trace"),
        pytest.param("nonsense", False, id="not a header"),
    ],
)
def test_the_caller_decides_before_the_sampler(traceparent: str, traced: bool) -> None:
    assert bool(serve(tracer(1, ratio=0.0), traceparent=traceparent)) is traced


def test_a_share_is_traced() -> None:
    made = tracer(1, ratio=0.25)
    assert 180 < sum(bool(serve(made)) for _ in range(1000)) < 320


async def test_a_collector_that_is_away_or_refuses_costs_spans_only(collector: Collector) -> None:
    away = tracer(1)
    serve(away)
    await away.flush()
    assert (away.exported, away.dropped) == (0, 2)
    refused = tracer(collector.port)
    collector.status = 500
    serve(refused)
    await refused.flush()
    assert (refused.exported, refused.dropped) == (0, 2)


def test_the_queue_is_bounded() -> None:
    made = tracer(1)
    for _ in range(3000):
        serve(made)
    assert made.dropped == 2 * 3000 - 4096


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/", "OTEL_EXPORTER_OTLP_HEADERS": "a=b, c=d"},
            Exporter(endpoint="http://c:4318/v1/traces", headers=(("a", "b"), ("c", "d"))),
            id="collector",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x", "OTEL_SERVICE_NAME": "s"},
            Exporter(endpoint="https://c/x", service="s"),
            id="traces only",
        ),
        pytest.param(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "0.1",
            },
            Exporter(endpoint="http://c/v1/traces", ratio=0.1),
            id="a share",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_SAMPLER": "always_off"},
            Exporter(endpoint="http://c/v1/traces", ratio=0.0),
            id="callers only",
        ),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, None, id="disabled"),
    ],
)
def test_the_environment(environ: dict[str, str], expected: Exporter | None) -> None:
    assert exporter_of(environ) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "x"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, value: str) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_SAMPLER": "traceidratio", name: value}
    with pytest.raises(UserError, match="OTEL_"):
        exporter_of(environ)

"""Spans of requests, sent to an OpenTelemetry collector as OTLP over HTTP in JSON.

Only where `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) names a collector; otherwise there is no tracer and a
request pays nothing. Written out here because a span of ours is a tuple and an export one POST per second; the official
SDK would bring three packages and theirs for it. The environment variables are OpenTelemetry's own.

Whether a request is traced is its caller's decision where it made one (`traceparent`), else the sampler's. Spans wait
in a bounded queue; when the collector is away they are dropped and counted, never waited for.
"""

import asyncio
import json
import random
import re
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pointsman.core.errors import UserError
from pointsman.core.http.client import fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.core.numbers import real

log = get_logger(__name__)

TRACEPARENT = "traceparent"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLERS = ("always_on", "always_off", "traceidratio")
_QUEUE = 4096
_BATCH = 512
_EXPORT_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_ANSWER_LIMITS = AnswerLimits(body_bytes=1 << 20)  # a collector has little to say
_SERVER, _INTERNAL = 2, 1  # OTLP's kinds of spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Where spans go, and how many of them."""

    endpoint: str
    service: str = "llm-d-epp"
    ratio: float = 1.0
    headers: tuple[tuple[str, str], ...] = ()


def exporter_of(environ: Mapping[str, str]) -> Exporter | None:
    """Return what OpenTelemetry's environment variables ask for; None when they name no collector.

    Raises UserError naming the variable that cannot be used.
    """
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (f"{base.rstrip('/')}/v1/traces" if base else "")
    if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    if protocol == "grpc" or urlsplit(endpoint).scheme not in {"http", "https"}:
        raise UserError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT {endpoint!r}: spans are sent as JSON over HTTP only: name the collector's "
            "HTTP receiver, such as http://collector:4318"
        )
    pairs = (pair.partition("=") for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if pair.strip())
    return Exporter(
        endpoint=endpoint,
        service=environ.get("OTEL_SERVICE_NAME") or "llm-d-epp",
        ratio=_ratio(environ),
        headers=tuple((key.strip(), value.strip()) for key, _, value in pairs),
    )


def _ratio(environ: Mapping[str, str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "always_on").removeprefix("parentbased_")
    if sampler not in _SAMPLERS:
        raise UserError(f"OTEL_TRACES_SAMPLER {sampler!r} is unknown: use one of {', '.join(_SAMPLERS)}")
    if sampler != "traceidratio":
        return float(sampler == "always_on")
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
    ratio = real(argument)
    if ratio is None:
        raise UserError(f"OTEL_TRACES_SAMPLER_ARG {argument!r} is not a number from 0 to 1")
    return min(1.0, max(0.0, ratio))


class Span(NamedTuple):
    """One piece of work."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start: int  # nanoseconds since 1970
    end: int
    attributes: Mapping[str, str | int]
    error: str = ""


class RequestSpan:
    """A request that is traced, while it is under way."""

    __slots__ = ("_attributes", "_parent", "_start", "_tracer", "id", "trace")

    def __init__(self, tracer: "Tracer", *, trace: str, parent: str, start: int) -> None:
        self._tracer = tracer
        self._parent = parent
        self._start = start
        self._attributes: dict[str, str | int] = {}
        self.trace = trace
        self.id = tracer.new_id(64)

    @property
    def traceparent(self) -> str:
        """What the model server is told, so that its spans belong to ours."""
        return f"00-{self.trace}-{self.id}-01"

    def picked(self, *, end: int, attributes: Mapping[str, str | int]) -> None:
        """Note the decision, which took from the beginning until now."""
        self._attributes.update(attributes)
        self._tracer.add(
            Span(
                self.trace,
                self._tracer.new_id(64),
                self.id,
                "gateway.request_orchestration",
                _INTERNAL,
                self._start,
                end,
                attributes,
            )
        )

    def ended(self, *, end: int, status: int) -> None:
        """Note the end of the request."""
        error = f"the model server answered {status}" if status != 200 else ""
        attributes = {**self._attributes, "http.response.status_code": status}
        self._tracer.add(
            Span(self.trace, self.id, self._parent, "gateway.request", _SERVER, self._start, end, attributes, error)
        )


class Tracer:
    """Begins spans, and sends those that have ended."""

    def __init__(self, exporter: Exporter, *, rng: random.Random) -> None:
        self._exporter = exporter
        self._rng = rng
        secure = urlsplit(exporter.endpoint).scheme == "https"
        self._tls = ssl.create_default_context() if secure else None  # once: it reads every authority's certificate
        self._queue: deque[Span] = deque()
        self.exported = 0
        self.dropped = 0

    def new_id(self, bits: int) -> str:
        """Return a random id that is not zero."""
        return f"{self._rng.getrandbits(bits) or 1:0{bits // 4}x}"

    def begin(self, headers: Mapping[str, str], *, start: int) -> RequestSpan | None:
        """Return the span of a request; None when it is not traced."""
        found = _PARENT.fullmatch(headers.get(TRACEPARENT, ""))
        if found is not None:
            sampled = int(found[3], 16) & 1
            return RequestSpan(self, trace=found[1], parent=found[2], start=start) if sampled else None
        if self._rng.random() >= self._exporter.ratio:
            return None
        return RequestSpan(self, trace=self.new_id(128), parent="", start=start)

    def add(self, span: Span) -> None:
        """Take a span that has ended."""
        if len(self._queue) >= _QUEUE:
            self.dropped += 1
        else:
            self._queue.append(span)

    async def run(self) -> None:
        """Send spans until cancelled, and the last ones then."""
        try:
            while True:
                await asyncio.sleep(_EXPORT_SECONDS)
                await self.flush()
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Send what there is."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            try:
                body = to_json(batch, service=self._exporter.service)
                status = await _post(self._exporter, body, tls=self._tls)
            except (OSError, ValueError) as error:  # a timeout is an OSError, a name that is none a ValueError
                self._drop(len(batch), reason=str(error))
                return  # the next ones fare no better now
            if status // 100 == 2:
                self.exported += len(batch)
            else:
                self._drop(len(batch), reason=f"the collector answered {status}")

    def _drop(self, count: int, *, reason: str) -> None:
        if not self.dropped:
            log.warning("tracing: spans are dropped", endpoint=self._exporter.endpoint, reason=reason)
        self.dropped += count


def to_json(spans: list[Span], *, service: str) -> bytes:
    """Return an ExportTraceServiceRequest: ids in hex, 64-bit numbers as text, as OTLP's JSON wants them."""
    resource = {"attributes": _attributes({"service.name": service})}
    scope = {"scope": {"name": "pointsman.epp"}, "spans": [_span(span) for span in spans]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}).encode()


def _span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
        "status": {"code": 2, "message": span.error} if span.error else {},
    }


def _attributes(attributes: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]


async def _post(exporter: Exporter, body: bytes, *, tls: ssl.SSLContext | None) -> int:
    """Send a body to the collector over a connection of its own, and return the status of the answer."""
    url = urlsplit(exporter.endpoint)
    fields = {"content-type": "application/json", "connection": "close"}
    fields |= {key.lower(): value for key, value in exporter.headers}
    message = request("POST", url.path or "/", host=url.netloc, headers=fields, body=body)
    port = url.port or (443 if tls else 80)
    answer = await fetch(
        message, host=url.hostname or "", port=port, tls=tls, seconds=_ANSWER_SECONDS, limits=_ANSWER_LIMITS
    )
    return answer.status

"""One request's part in the metrics: told what happens, it knows what that means for which family.

It rides on the request's reservation, which hears of everything anyway, so the state machine of a stream knows nothing
of metrics. A response is streamed when its body begins like server-sent events. Counted is what we saw, at the time
when we saw it: from the pick to the end of the response, or of the stream when that comes first. The same rider writes
the request's spans, where there is a tracer.
"""

import time
from collections.abc import Callable

from pointsman.core.families import Cell
from pointsman.epp.metrics.picker import NOT_COUNTED, CountsRequests, PickerMetrics, RequestCells
from pointsman.epp.metrics.tracing import RequestSpan, Tracer
from pointsman.epp.plugins.api import PrefixMatches
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

_EVENTS = (b"data:", b"event", b"id:", b"retry", b":")
_BYTES_PER_TOKEN = 4  # what an estimated token stands for


class RequestMeter:
    """Counts one request."""

    __slots__ = ("_began", "_bytes", "_clock", "_first", "_last", "_row", "_status", "_streaming", "_tokens", "span")

    def __init__(
        self, row: CountsRequests, *, clock: Callable[[], float], size: int | None, span: RequestSpan | None = None
    ) -> None:
        self.span = span
        self._row = row
        self._status = 0
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._last = 0.0
        self._streaming = False
        self._bytes = 0
        self._tokens = 0
        row.began()
        if size is not None:
            row.sized(size)

    def sized(self, size: int) -> None:
        """Take the size of a request's body that was not read."""
        self._row.sized(size)

    def answered(self, status: int) -> None:
        """Take the status of the response."""
        self._status = status
        if status != 200:
            self._row.failed("ModelServerError")

    def chunk(self, body: bytes) -> None:
        """Take a piece of the response."""
        if not body:
            return
        now = self._clock()
        self._bytes += len(body)
        if self._first is None:
            self._first = now - self._began
            self._streaming = body.startswith(_EVENTS)
            self._row.first_byte(seconds=self._first, streaming=self._streaming)
        elif self._streaming:
            self._row.gap(now - self._last)
        self._last = now

    def used(self, *, prompt: int, output: int, cached: int | None = None) -> None:
        """Take the tokens that the model server says it used."""
        self._tokens = output
        self._row.used(prompt=prompt, output=output, cached=cached)

    def took(self) -> tuple[float, float | None] | None:
        """Return the milliseconds to the first byte (of all, where it was not streamed), and per further token."""
        if self._status != 200 or self._first is None:
            return None
        seconds = self._clock() - self._began
        if not self._streaming:
            return seconds * 1000, None
        more = self._tokens - 1
        return self._first * 1000, (seconds - self._first) / more * 1000 if more > 0 else None

    def ended(self) -> None:
        """Take the end; once."""
        seconds = self._clock() - self._began
        self._row.ended(seconds=seconds, size=self._bytes)
        if self._tokens:
            self._row.paced(seconds=seconds, output=self._tokens, first=self._first if self._streaming else None)
        if self.span is not None:
            self.span.ended(end=time.time_ns(), status=self._status)


class Bookkeeper:
    """Opens the meters of requests, and counts those that get none."""

    def __init__(self, metrics: PickerMetrics, *, clock: Callable[[], float], tracer: Tracer | None = None) -> None:
        self._metrics = metrics
        self._clock = clock
        self._tracer = tracer
        self._lookups: dict[str, tuple[Cell, Cell]] = {}

    def now(self) -> float:
        """Return the time, for `picked` and `refused`."""
        return self._clock()

    def picked(self, request: Request, endpoint: EndpointView, *, pod: str = "", since: float) -> RequestMeter:
        """Count a pick, and return what counts the rest of the request; without a body nothing is counted of it."""
        metrics = self._metrics
        if not request.has_body:
            span = self._begin_span(request, endpoint, since=since) if self._tracer is not None else None
            return RequestMeter(NOT_COUNTED, clock=self._clock, size=None, span=span)
        where = (pod or endpoint.name, endpoint.namespace, endpoint.port)
        metrics.scheduled(seconds=self._clock() - since, target_model=request.target_model, endpoint=where)
        for key, value in request.attributes.items():
            if isinstance(value, PrefixMatches) and value.total:
                found = value.cached.get(endpoint.target, 0)
                ratio, size = self._lookups.get(key) or self._lookup(key)
                ratio.observe(found / value.total)
                size.observe(found * value.block_tokens * _BYTES_PER_TOKEN)
        span = self._begin_span(request, endpoint, since=since) if self._tracer is not None else None
        return RequestMeter(self._row(request), clock=self._clock, size=request.size or None, span=span)

    def _lookup(self, key: str) -> tuple[Cell, Cell]:
        """Return where looks into an index are counted; found once, because every request comes here."""
        cells = self._lookups[key] = self._metrics.lookups(key.partition("/")[2], kind="approx-prefix-cache-producer")
        return cells

    def _begin_span(self, request: Request, endpoint: EndpointView, *, since: float) -> RequestSpan | None:
        assert self._tracer is not None
        now = time.time_ns()
        span = self._tracer.begin(request.headers, start=now - int((self._clock() - since) * 1e9))
        if span is not None:
            attributes: dict[str, str | int] = {
                "gen_ai.request.model": request.model,
                "llm_d.target_model": request.target_model,
                "llm_d.request_id": request.id,
                "llm_d.endpoint": endpoint.target,
            }
            span.picked(end=now, attributes=attributes)
        return span

    def rewrote(self, *, rewrite: str, model: str, target: str) -> None:
        """Count a model name that a rewrite rule changed."""
        self._metrics.rewrote(rewrite=rewrite, model=model, target=target)

    def refused(self, request: Request, *, code: str) -> None:
        """Count a request that is answered by us."""
        self._row(request).failed(code)

    def not_scheduled(self, request: Request, *, since: float) -> None:
        """Count a request for which no endpoint was found among the candidates."""
        self._metrics.not_scheduled(seconds=self._clock() - since, target_model=request.target_model)

    def _row(self, request: Request) -> RequestCells:
        return self._metrics.row(
            model=request.model,
            target=request.target_model,
            fairness=request.fairness_id,
            priority=request.priority,
        )

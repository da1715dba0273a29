"""Metrics of ext_proc streams and of our time in them, where `--enable-grpc-stream-metrics` asks for them.

Wraps a call and passes everything through, so that streams that are not measured pay nothing. A message belongs to the
request or to the response by its first field, which for Envoy is always the message itself.
"""

from collections.abc import Callable, Iterable, Sequence

from pointsman.core.families import Counter, Family, Gauge, Histogram, names
from pointsman.epp.extproc.messages import Malformed, MessageKind
from pointsman.wire.grpc import Call, Failure, Reply
from pointsman.wire.protobuf import Data

_OPEN = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)
_REQUEST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_RESPONSE = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_OF_REQUEST = frozenset({MessageKind.REQUEST_HEADERS, MessageKind.REQUEST_BODY, MessageKind.REQUEST_TRAILERS})


class StreamMetrics:
    """Counts streams by how they ended."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.inflight = 0
        self.total = Counter(names("llm_d_epp_extproc_streams_total", ("code",)), "ext_proc streams by their status.")
        self.duration = Histogram(
            names("llm_d_epp_extproc_stream_duration_seconds", ()), "Seconds that a stream was open.", bounds=_OPEN
        )
        self.request = Histogram(
            names("llm_d_epp_request_processing_duration_seconds", ()),
            "Seconds of our work on a request.",
            bounds=_REQUEST,
        )
        self.response = Histogram(
            names("llm_d_epp_response_processing_duration_seconds", ()),
            "Seconds of our work on a response.",
            bounds=_RESPONSE,
        )

    def families(self) -> Iterable[Family]:
        """Return what is shown."""
        yield Gauge(names("llm_d_epp_extproc_streams_inflight", ()), "Open streams.", read=lambda: {(): self.inflight})
        yield from (self.total, self.duration, self.request, self.response)

    def open(self, call: Call) -> Call:
        """Measure a call from now on."""
        return _Measured(call, metrics=self)


class _Measured:
    """A call with a watch beside it."""

    __slots__ = ("_began", "_call", "_code", "_metrics", "_spent")

    def __init__(self, call: Call, *, metrics: StreamMetrics) -> None:
        self._call = call
        self._metrics = metrics
        self._began = metrics.clock()
        self._code = "Canceled"  # Envoy resets its streams; what ends otherwise says so
        self._spent = [0.0, 0.0]
        metrics.inflight += 1

    @property
    def finished(self) -> bool:
        """What the call says."""
        return self._call.finished

    @finished.setter
    def finished(self, value: bool) -> None:
        self._call.finished = value

    def message(self, data: Data) -> Sequence[Reply]:
        clock = self._metrics.clock
        began = clock()
        try:
            replies = self._call.message(data)
        except Failure as failure:
            self._code = failure.status.name.title().replace("_", "")
            raise
        except Malformed:
            self._code = "InvalidArgument"
            raise
        except Exception:
            self._code = "Internal"
            raise
        self._spent[not data or data[0] >> 3 not in _OF_REQUEST] += clock() - began
        return replies

    def half_closed(self) -> bool:
        goes_on = self._call.half_closed()
        if not goes_on:
            self._code = "OK"
        return goes_on

    def closed(self) -> None:
        metrics = self._metrics
        if self._call.finished:  # also by what it pushed
            self._code = "OK"
        self._call.closed()
        metrics.inflight -= 1
        metrics.total.add((self._code,))
        metrics.duration.cell(()).observe(metrics.clock() - self._began)
        for family, seconds in zip((metrics.request, metrics.response), self._spent, strict=True):
            if seconds:
                family.cell(()).observe(seconds)

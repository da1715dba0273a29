"""What is asked of llm-d's latency predictor, a sidecar of the picker, and what is told to it: messages, no socket.

One question has a row for every candidate of a request: the state of the endpoint, and what of the prompt it has. The
answer has two numbers for each row, in their order. What came of requests is told in the same features, with the
milliseconds that were measured: one entry for a first token and one for further tokens, as the Go picker has it. Field
names are those of the messages.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from pointsman.core.addresses import ServiceAddress

PREDICT = "/predict/bulk/strict"
TRAIN = "/add_training_data_bulk"
_MOST_MS = 1e9  # eleven days: nobody predicts more in earnest

Predicted = tuple[float, float]
"""Milliseconds to the first token, and from one token to the next."""


class PredictionService(msgspec.Struct, frozen=True, kw_only=True):
    """Where predictions come from, and how long they may take."""

    addresses: tuple[ServiceAddress, ...]  # any of them will do
    seconds: float = 0.1  # to wait for an answer
    dispatches: int = 4  # questions under way at once; more are put together


class TrainingService(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to know what came of requests."""

    address: ServiceAddress
    every_seconds: float = 1.0  # what came since is told
    seconds: float = 10.0  # to wait for an answer


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint, and one request, at the moment of a decision."""

    kv_cache_percentage: float  # 0..1
    input_token_length: int
    num_request_waiting: int
    num_request_running: int
    num_tokens_generated: int
    prefix_cache_score: float  # 0..1
    encoder_input_size: int = 0
    encoder_matched_size: int = 0
    pod_type: str | UnsetType = UNSET
    prefill_tokens_in_flight: int = 0
    decode_tokens_in_flight: int = 0


class PredictionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks of the service."""

    service: PredictionService
    answer: str  # the attribute of the request that the answer becomes: `Predicted` by target
    targets: tuple[str, ...]
    rows: tuple[Features, ...]  # in their order


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one request: one of the two times, with what was predicted."""

    features: Features
    at: float  # on the picker's monotonic clock
    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    predicted_ttft_ms: float | None = None
    predicted_tpot_ms: float | None = None


class Samples:
    """Those that have not been sent; of too many the oldest are dropped."""

    def __init__(self, most: int) -> None:
        self._waiting: deque[Sample] = deque(maxlen=most)
        self.results: Counter[str] = Counter()  # sent, dropped, and lost on the way

    def add(self, sample: Sample) -> None:
        """Keep one for the next batch."""
        if len(self._waiting) == self._waiting.maxlen:
            self.results["dropped"] += 1
        self._waiting.append(sample)

    def take(self) -> list[Sample]:
        """Return all of them, oldest first, and forget them."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


class Unreadable(ValueError):
    """An answer that is not one."""


class _Row(msgspec.Struct, gc=False):
    ttft_ms: float
    tpot_ms: float


class _Answer(msgspec.Struct):
    predictions: list[_Row]
    failed_predictions: int = 0


class _Entry(Features, frozen=True, kw_only=True):
    actual_ttft_ms: float
    actual_tpot_ms: float
    timestamp: datetime
    predicted_ttft_ms: float | UnsetType = UNSET
    predicted_tpot_ms: float | UnsetType = UNSET


_read = msgspec.json.Decoder(_Answer).decode


def question_body(rows: Sequence[Features]) -> bytes:
    """Return what is sent to `/predict/bulk/strict`."""
    return msgspec.json.encode({"requests": rows})


def read_answer(answer: bytes, *, rows: int) -> list[Predicted]:
    """Return the predictions, one for each row.

    Raises Unreadable when these are not all there, or no times.
    """
    try:
        found = _read(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    if found.failed_predictions > 0:
        raise Unreadable(f"{found.failed_predictions} predictions failed")
    if len(found.predictions) != rows:
        raise Unreadable(f"{len(found.predictions)} predictions for {rows} endpoints")
    if not all(_is_time(row.ttft_ms) and _is_time(row.tpot_ms) for row in found.predictions):
        raise Unreadable("a prediction is no time")
    return [(row.ttft_ms, row.tpot_ms) for row in found.predictions]


def _is_time(milliseconds: float) -> bool:
    return math.isfinite(milliseconds) and 0.0 <= milliseconds <= _MOST_MS


def training_body(samples: Sequence[Sample], *, now: float, wall: datetime) -> bytes:
    """Return what is sent to `/add_training_data_bulk`; `now` and `wall` are the same moment on two clocks."""
    return msgspec.json.encode(
        {"entries": [_entry(each, wall=wall - timedelta(seconds=now - each.at)) for each in samples]}
    )


def _entry(sample: Sample, *, wall: datetime) -> _Entry:
    features: Mapping[str, object] = msgspec.structs.asdict(sample.features)
    return _Entry(
        **features,  # type: ignore[arg-type] # they are its own fields
        actual_ttft_ms=sample.ttft_ms,
        actual_tpot_ms=sample.tpot_ms,
        timestamp=wall,
        predicted_ttft_ms=UNSET if sample.predicted_ttft_ms is None else sample.predicted_ttft_ms,
        predicted_tpot_ms=UNSET if sample.predicted_tpot_ms is None else sample.predicted_tpot_ms,
    )

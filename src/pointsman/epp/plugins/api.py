"""What a plugin is: small protocols, and the few things that it is given.

A class takes part wherever it has the method (`schedule.points` is the table): `filter`, `score` and `pick` in the
profiles that name it; `produce`, `admit`, `before_send` and `on_response` for every request; `on_endpoints` when
endpoints come or go; `saturation` where it is named as the detector; `next_profiles` and `conclude` as the one profile
handler; `wants` for the handler that names it. Lists are aligned: `score` returns one number per endpoint,
in the order in which it was given them; arguments are positional, so a class may call them what it likes. Everything is
synchronous and sees frozen views only. A plugin may remember;
it must not do I/O, sleep, or keep a request.

A plugin that raises loses its own contribution to this one decision, is counted and logged; the request goes on. The
exception is a `Refusal`, which is an answer and not a failure.
"""

import random
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    runtime_checkable,
)

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from pointsman.core.families import Cell
from pointsman.core.numbers import real
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.predictions import PredictionQuestion, Samples, TrainingService
from pointsman.epp.request.refusals import Answer
from pointsman.epp.request.request import Needs, Request

T = TypeVar("T")


class Parameters(BaseModel):
    """Base of the parameters of our own plugins: frozen, strict, camelCase in files.

    pydantic makes a validator when the first parameters are read: a picker uses few of its plugins.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        defer_build=True,
    )
    or_default: ClassVar[frozenset[str]] = frozenset()
    """The fields whose default is meant by a number that is not above 0."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_it_is(cls, value: object, info: ValidationInfo) -> object:
        """Take no text for a number and no truth either: files say what they mean, and the Go picker refuses it too."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, str | bool) and not any(isinstance(each, BeforeValidator) for each in field.metadata):
            kinds = _members(field.annotation)
            number = int in kinds or float in kinds
            if (number or bool in kinds) and type(value) not in kinds and (number or isinstance(value, str)):
                raise ValueError(f"must be {'a number' if number else 'true or false'}, not {value!r}")
        return value


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def _bare(name: str) -> str:
    if "/" in name:
        raise ValueError(
            f"{name!r} names its producer, too: write the bare name, and producer as a parameter of its own"
        )
    return name


BareName = Annotated[str, AfterValidator(_bare)]
"""The name of an attribute; who produces it is another parameter."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a plugin that asks for `context` is given."""

    name: str
    clock: Callable[[], float]
    rng: random.Random
    plugins: Mapping[str, Any] = field(default_factory=dict)  # those that its `references` named
    profiles: tuple[str, ...] = ()  # the configured profiles, for handlers
    environment: Mapping[str, str] = field(default_factory=dict)  # of the process, where it may have a say


class Key(Generic[T]):
    """The name of something that a producer finds out about a request, with its type.

    The same kind of thing can come from several producers; `name` says from which.
    """

    __slots__ = ("kind", "name", "producer")

    def __init__(self, kind: str, *, producer: str) -> None:
        self.kind = kind
        self.producer = producer
        self.name = f"{kind}/{producer}"

    def of(self, request: Request) -> T | None:
        """Return what was found out about the request, or None."""
        return cast("T | None", request.attributes.get(self.name))

    def __repr__(self) -> str:
        return f"Key({self.name})"


class PrefixMatches(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a prompt each endpoint has cached, in blocks from its start; endpoints that have none are left out.

    `cached` counts blocks; `blocks` may weigh them by where they lie, and is the same where nobody knows.
    """

    total: int
    block_tokens: int
    blocks: Mapping[str, int]  # by target
    cached: Mapping[str, int]


class RequestCost(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens of work a request is, at each endpoint."""

    prompt: int
    output: int = 0  # estimated, where that is asked for
    media: int = 0  # of the prompt's tokens, those of images, videos and sounds
    matches: PrefixMatches | None = None

    def at(self, target: str) -> int:
        """Return the tokens that this endpoint would have to compute."""
        if self.matches is None:
            return self.prompt + self.output
        cached = self.matches.cached.get(target, 0) * self.matches.block_tokens
        return max(0, self.prompt - cached) + self.output

    def media_at(self, target: str) -> int:
        """Return how many of them are of images, videos and sounds: what is cached is taken for text first."""
        return min(self.media, self.at(target))


class EncoderMatches(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a request's images, videos and sounds each endpoint has encoded; who has none is left out."""

    total: int  # the sizes of all of them
    matched: Mapping[str, int]  # … of those that are there, by target


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """The latencies that a client asks for in milliseconds; 0 where it asks for none."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0

    @classmethod
    def of(cls, request: Request) -> "Slo":
        """Return what the request's headers say; what is no number above 0 says nothing."""
        return cls(ttft_ms=_milliseconds(request, _SLO_TTFT), tpot_ms=_milliseconds(request, _SLO_TPOT))


_SLO_TTFT = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
_SLO_TPOT = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")


def _milliseconds(request: Request, names: Sequence[str]) -> float:
    text = next((found for name in names if (found := request.headers.get(name))), "")
    return max(0.0, real(text) or 0.0)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long one request is expected to take at one endpoint."""

    ttft_ms: float
    tpot_ms: float | None = None  # None where it does not matter, as for an answer that is not streamed


class Headroom(msgspec.Struct, frozen=True):
    """What is left of the latencies that were asked for, in milliseconds; below 0 they are missed."""

    ttft: float = 0.0
    tpot: float = 0.0

    @property
    def enough(self) -> bool:
        """Whether neither is missed."""
        return self.ttft >= 0 and self.tpot >= 0


class LatencyPredictions(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor expects of a request at each endpoint; those that it knows nothing of are left out."""

    latencies: Mapping[str, Latency]  # by target
    slo_buffer: float = 1.0  # a TPOT objective times this is what has to be met

    def headroom(self, target: str, *, slo: Slo) -> Headroom | None:
        """Return what is left: objective − prediction, of TPOT with its buffer; an objective that nobody set is 0.

        None without a prediction.
        """
        latency = self.latencies.get(target)
        if latency is None:
            return None
        tpot = 0.0 if latency.tpot_ms is None else slo.tpot_ms * self.slo_buffer - latency.tpot_ms
        return Headroom(slo.ttft_ms - latency.ttft_ms, tpot)


SERVED = "x-gateway-destination-endpoint-served"
"""The attribute of a request whose response is here: which endpoint the proxy says it used, if it says so."""

PEER_ENDPOINT = "peer-endpoint"
"""The attribute of a request that names the endpoint of the stage before, while a later one is decided."""

STAGES = "stage-endpoints"
"""The attribute of a request whose response is complete, where several profiles ran: which endpoint each picked."""

OUTLEN_BUCKET = "outlen-bucket"
"""The attribute of a request that says how long its answer will probably be: LONG, SHORT or UNKNOWN."""

PREFIX_MATCHES = "PrefixCacheMatchInfo"
ENCODER_MATCHES = "EncoderCacheMatchInfo"
LATENCY_PREDICTIONS = "LatencyPredictionInfo"
INFLIGHT_LOAD = "InFlightLoad"
TOKENIZED_PROMPT = "TokenizedPrompt"
SESSION_ID = "SessionID"

Endpoints = Sequence[EndpointView]


class Picked(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile came to: the endpoints to use, best first, and the scores of all that were in the running."""

    endpoints: Endpoints
    candidates: Endpoints
    scores: Sequence[float]  # of the candidates, in their order

    @property
    def first(self) -> EndpointView:
        """The endpoint to use."""
        return self.endpoints[0]


Results = Mapping[str, Picked | None]
"""By profile, in the order in which they ran; None where filters left nobody."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile handler makes of its profiles' results."""

    primary: str  # the profile whose endpoints serve the request
    target: str = ""  # send it to this `ip:port` (or these, with commas between) instead of the endpoints' own


class HeaderChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a request's headers on the way to the model server."""

    set: Sequence[tuple[str, str]] = ()
    remove: Sequence[str] = ()


class Filter(Protocol):
    """Drops endpoints."""

    def filter(self, request: Request, endpoints: Endpoints, /) -> Endpoints:
        """Return those that may serve the request."""


class Scorer(Protocol):
    """Ranks endpoints."""

    def score(self, request: Request, endpoints: Endpoints, /) -> Sequence[float]:
        """Return one number per endpoint, from 0 (worst) to 1; what lies outside is clamped."""


class Picker(Protocol):
    """Chooses by scores."""

    def pick(self, request: Request, endpoints: Endpoints, scores: Sequence[float], /) -> Endpoints:
        """Return the endpoints to try, in this order; at least one."""


class ProfileHandler(Protocol):
    """Says which profiles run, and what their results mean.

    One that always runs one profile, and only that, may name it in an attribute `only_profile`; it is then asked only
    when that profile has nobody.
    """

    def next_profiles(self, request: Request, results: Results, /) -> Sequence[str]:
        """Return the profiles to run now; none when `results` has all that is needed."""

    def conclude(self, request: Request, results: Results, /) -> Conclusion:
        """Return which result serves the request.

        Raises Refusal when none can.
        """


class Producer(Protocol):
    """Finds something out about a request before filters and scorers run."""

    @property
    def produces(self) -> Sequence[Key[Any]]:
        """What it finds out."""

    def produce(self, request: Request, endpoints: Endpoints, /) -> Mapping[str, object]:
        """Return it, by the names of its keys."""


class Asks(Protocol):
    """A producer that wants to know what a prediction service thinks, before anything is decided."""

    def question(self, request: Request, endpoints: Endpoints, /) -> PredictionQuestion | None:
        """Return what to ask, and which attribute of the request the answer becomes; None for nothing.

        What it consumes is known. It names the service in `needs`, too. Where there is no answer the attribute is not
        there when `produce` is called.
        """


class BodyReader(Protocol):
    """A plugin of any kind that reads a request's prompt, and so says what it has to know of a body."""

    def needs(self, endpoints: Endpoints, /) -> Needs | None:
        """Return it; the first of the endpoints stands for all, and nobody is there yet at a start."""


class Admitter(Protocol):
    """May turn a request away."""

    def admit(self, request: Request, endpoints: Endpoints, /) -> str:
        """Return why the request cannot be admitted; nothing when it can."""


class Detector(Protocol):
    """Says how full a pool is."""

    def saturation(self, endpoints: Endpoints, /) -> float:
        """Return 0 for idle, 1 and more for full."""


class Decider(Protocol):
    """Says whether a stage is worth running on another endpoint than the one that decodes."""

    def wants(self, request: Request, endpoint: EndpointView | None, /) -> bool:
        """Return whether; `endpoint` is the decode pick when there is one."""


class BeforeSend(Protocol):
    """Is told what was decided."""

    def before_send(self, request: Request, results: Results, primary: str, /) -> HeaderChanges | None:
        """Remember, or return what to change in the request's headers."""


class OnResponse(Protocol):
    """Adds to the response's headers."""

    def on_response(self, request: Request, endpoint: EndpointView, /) -> Sequence[tuple[str, str]]:
        """Return the headers to set; `endpoint` is the one that answered."""


class Answers(Protocol):
    """Answers requests without a body itself."""

    def answer(self, request: Request, endpoints: Endpoints, /) -> Answer | None:
        """Return the answer; None when the request is not for it."""


@runtime_checkable
class Reserves(Protocol):
    """Lets a client ask where it would be sent, instead of sending it there (`Prefer: reserve-endpoint`)."""

    reserves: bool


class Identifies(Protocol):
    """Says whose request it is, where no header does."""

    def identify(self, request: Request, /) -> str:
        """Return the fairness id; nothing when it cannot tell."""


class Reports(Protocol):
    """Tells the proxy about a response that is complete."""

    def report(self, request: Request, usage: Mapping[str, Any], /) -> Mapping[str, Mapping[str, float]]:
        """Return dynamic metadata by namespace and name; `usage` is as the completions API has it."""


class Learns(Protocol):
    """Is told how long a response took."""

    def learn(self, request: Request, endpoint: EndpointView, ttft_ms: float, tpot_ms: float | None, /) -> None:
        """Remember it; `endpoint` is as it was when it was picked, `tpot_ms` None of what was not streamed."""


class OnEndpoints(Protocol):
    """Is told when endpoints come and go."""

    def on_endpoints(self, targets: frozenset[str], /) -> None:
        """Forget what belongs to others than these."""


@runtime_checkable
class CountsStages(Protocol):
    """Counts requests by model and by the stages that ran for them; shown in the metrics."""

    decisions: Mapping[tuple[str, str], int]


RATIOS = tuple(at / 10 for at in range(11))
"""The bounds of shares."""


@runtime_checkable
class CountsLookups(Protocol):
    """Counts what it looked for and found; shown in the metrics."""

    queries: Mapping[str, int]  # by modality
    hits: Mapping[tuple[str, str], int]  # by endpoint and modality
    ratios: Cell  # of what was found, for each endpoint that was looked at


@runtime_checkable
class CountsUnlisted(Protocol):
    """Counts how often endpoints said that they do not serve a model; shown in the metrics."""

    outcomes: Mapping[str, int]  # of its decisions
    candidates: int  # endpoints that it looked at
    unlisted: int  # … and that had given no list


@runtime_checkable
class CountsAffinity(Protocol):
    """Counts why endpoints that have a prompt cached were kept, or not; shown in the metrics."""

    affinity_outcomes: Mapping[str, int]


@runtime_checkable
class Covers(Protocol):
    """Says which share of its predictions held; shown in the metrics."""

    @property
    def coverage(self) -> Mapping[str, float]:
        """The share, by what was predicted."""


@runtime_checkable
class Trains(Protocol):
    """Has samples of what came of requests for a service that learns from them."""

    training: TrainingService | None
    samples: Samples


@runtime_checkable
class KeepsIndex(Protocol):
    """Keeps an index of prefixes, whose size is shown in the metrics."""

    index: Sized

"""Speaks to the picker's side of one request as Envoy does; answers are read with the official classes."""

import random
from collections.abc import Callable, Mapping, Sequence

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from pointsman.core.budget import Budget
from pointsman.epp.body.rendering import TokenQuestion
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.stream import Exchange, Told
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.predictions import Predicted, PredictionQuestion, PredictionService
from pointsman.epp.request.request import Rendered
from pointsman.epp.request.rewrites import Rewritten
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.records import Records
from pointsman.wire.grpc import Reply

A, B, C = (Endpoint(name=f"sim-{n}", address=f"10.0.0.{n}", port=8000) for n in (1, 2, 3))


LEAST_BUSY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: active-request-scorer
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}
"""


READS_NOTHING = "requestHandler: {parsers: [{pluginRef: passthrough-parser}]}"


def make(*endpoints: Endpoint, patient: bool = False, max_body: int = 1 << 20) -> "Talk":
    pool = Pool()
    pool.replace(endpoints)
    rng = random.Random(7)
    plan = load(LEAST_BUSY if patient else LEAST_BUSY + READS_NOTHING)
    built = Builder(clock=lambda: 0.0, rng=rng).build(plan)
    director = Director(pool=pool, scheduler=built.scheduler, records=Records(), rng=rng)
    return Talk(director, max_body=max_body)


class Sidecar:
    """Stands where prediction sidecars are asked; a test answers."""

    def __init__(self) -> None:
        self.willing = True
        self.asked: list[PredictionQuestion] = []
        self.waiting: Told | None = None

    def asks(self, _service: PredictionService) -> bool:
        return self.willing

    def ask(self, question: PredictionQuestion, done: Told) -> Callable[[], None]:
        self.asked.append(question)
        self.waiting = done
        return self.forget

    def forget(self) -> None:
        self.waiting = None


class Talk:
    """Speaks as Envoy does."""

    metrics: PickerMetrics

    def __init__(self, director: Director, *, max_body: int) -> None:
        self.director = director
        self.max_body = max_body
        self.pushed: list[bytes] = []
        self.asked: list[TokenQuestion] = []
        self.waiting: Callable[[Rendered | None], None] | None = None
        self.sidecar = Sidecar()
        self.now = 0.0
        self.budget = Budget(limit=1 << 20)
        self.deadlines = Deadlines(seconds=60.0, clock=lambda: self.now)
        self.exchange = self.open()

    def open(self) -> Exchange:
        return Exchange(
            self.push,
            director=self.director,
            ask=self.ask,
            predictor=self.sidecar,
            fresh_id=lambda: "fresh-id",
            max_body=self.max_body,
            budget=self.budget,
            deadlines=self.deadlines,
        )

    def push(self, *messages: Reply) -> None:
        self.pushed += map(bytes, messages)

    def ask(self, question: TokenQuestion, done: Callable[[Rendered | None], None]) -> Callable[[], None]:
        self.asked.append(question)
        self.waiting = done
        return self.forget

    def forget(self) -> None:
        self.waiting = None

    def tell(self, rendered: Rendered | None) -> list[pb.ProcessingResponse]:
        """Answer as the tokenizer service does; return what is then sent."""
        assert self.waiting is not None
        self.pushed.clear()
        self.waiting(rendered)
        return [pb.ProcessingResponse.FromString(raw) for raw in self.pushed]

    def predict(self, answer: Sequence[Predicted] | None) -> list[pb.ProcessingResponse]:
        """Answer as a prediction sidecar does; return what is then sent."""
        assert self.sidecar.waiting is not None
        self.pushed.clear()
        self.sidecar.waiting(answer)
        return [pb.ProcessingResponse.FromString(raw) for raw in self.pushed]

    def say(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        replies = self.exchange.message(message.SerializeToString())
        return [pb.ProcessingResponse.FromString(bytes(raw)) for raw in replies]

    def headers(
        self,
        *,
        path: str = "/v1/completions",
        end: bool = False,
        modes: tuple[int, int] = (4, 4),
        subset: list[str] | None = None,
        raw: Mapping[str, bytes] | None = None,
        **extra: str,
    ) -> list[pb.ProcessingResponse]:
        rows = {":path": path, "x-request-id": "r-1", **{k.replace("_", "-"): v for k, v in extra.items()}}
        encoded = {**{k: v.encode() for k, v in rows.items() if v}, **(raw or {})}
        entries = [base_pb2.HeaderValue(key=k, raw_value=v) for k, v in encoded.items()]
        message = pb.ProcessingRequest(
            request_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries), end_of_stream=end)
        )
        message.protocol_config.request_body_mode, message.protocol_config.response_body_mode = modes
        if subset is not None:
            hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint.update({"x-gateway-destination-endpoint-subset": subset})
        return self.say(message)

    def body(self, body: bytes, *, end: bool = False) -> list[pb.ProcessingResponse]:
        return self.say(pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=end)))

    def answer(self, *, served: str = "", end: bool = False) -> list[pb.ProcessingResponse]:
        message = pb.ProcessingRequest(response_headers=pb.HttpHeaders(end_of_stream=end))
        if served:
            lb = message.metadata_context.filter_metadata["envoy.lb"]
            lb.update({"x-gateway-destination-endpoint-served": served})
        return self.say(message)

    def answer_body(self, body: bytes, *, end: bool = False) -> list[pb.ProcessingResponse]:
        return self.say(pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=end)))

    @property
    def inflight(self) -> dict[str, int]:
        return {member.endpoint.name: member.inflight for member in self.director.pool.members}


def picked(reply: pb.ProcessingResponse) -> str:
    """Return the pick, after checking that header and metadata agree."""
    common = reply.request_headers.response
    assert common.clear_route_cache
    rows = {o.header.key: o.header.raw_value.decode() for o in common.header_mutation.set_headers}
    metadata = dict(reply.dynamic_metadata)["envoy.lb"]
    assert metadata["x-gateway-destination-endpoint"] == rows["x-gateway-destination-endpoint"]
    return str(rows["x-gateway-destination-endpoint"])


def streamed(replies: list[pb.ProcessingResponse]) -> list[tuple[bytes, bool]]:
    chunks = [
        getattr(reply, str(reply.WhichOneof("response"))).response.body_mutation.streamed_response for reply in replies
    ]
    return [(chunk.body, chunk.end_of_stream) for chunk in chunks]


NO_MODEL = "inference error: BadRequest - model not found in request body"


COMPLETION = b'{"model":"asked","prompt":"hello","n":1.0 }'


TOKENIZED = (
    LEAST_BUSY
    + """
- {type: token-producer, parameters: {modelName: base}}
- {type: approx-prefix-cache-producer}
"""
)


def full_talk(*endpoints: Endpoint, rewrite: str = "", config: str = "") -> Talk:
    """Return a talk with a configuration, the default one as a rule, and maybe a rewrite rule for every model."""
    pool = Pool()
    pool.replace(endpoints)
    rng = random.Random(7)
    built = Builder(clock=lambda: 0.0, rng=rng).build(load(config))
    options = DirectorOptions(rewrite=lambda _model: Rewritten(rewrite="all", model=rewrite) if rewrite else None)
    metrics = PickerMetrics()
    books = Bookkeeper(metrics, clock=lambda: 0.0)
    director = Director(pool=pool, scheduler=built.scheduler, records=Records(), rng=rng, options=options, books=books)
    talk = Talk(director, max_body=1 << 20)
    talk.metrics = metrics
    return talk


def immediate(replies: list[pb.ProcessingResponse]) -> tuple[int, str]:
    (reply,) = replies
    return reply.immediate_response.status.code, reply.immediate_response.body.decode()

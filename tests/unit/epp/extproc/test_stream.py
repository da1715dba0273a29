"""One request, message by message, as Envoy sends them; answers are read with the official classes."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from pointsman.core.budget import Budget
from pointsman.epp.body.prompts import token_bytes
from pointsman.epp.body.rendering import TokenQuestion
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.messages import BodyMode
from pointsman.epp.extproc.stream import Exchange, OutOfOrder
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.request import Rendered
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.explain_log import DecisionRecorder, read_recording
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


class Talk:
    """Speaks as Envoy does."""

    metrics: PickerMetrics

    def __init__(self, director: Director, *, max_body: int) -> None:
        self.director = director
        self.max_body = max_body
        self.pushed: list[bytes] = []
        self.asked: list[TokenQuestion] = []
        self.waiting: Callable[[Rendered | None], None] | None = None
        self.now = 0.0
        self.budget = Budget(limit=1 << 20)
        self.deadlines = Deadlines(seconds=60.0, clock=lambda: self.now)
        self.exchange = self.open()

    def open(self) -> Exchange:
        return Exchange(
            self.push,
            director=self.director,
            ask=self.ask,
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


def test_a_whole_request() -> None:
    talk = make(A)
    (reply,) = talk.headers()
    assert picked(reply) == "10.0.0.1:8000"
    assert talk.inflight == {"sim-1": 1}, "reserved at once"
    assert streamed(talk.body(b"hello")) == [(b"hello", False)]
    assert streamed(talk.body(b"", end=True)) == [(b"", True)]
    (headers,) = talk.answer()
    mutation = headers.response_headers.response.header_mutation.set_headers[0].header
    assert (mutation.key, mutation.raw_value) == ("x-went-into-resp-headers", b"true")
    assert streamed(talk.answer_body(b"data: 1\n\n")) == [(b"data: 1\n\n", False)]
    assert talk.inflight == {"sim-1": 1}
    assert streamed(talk.answer_body(b"data: 2\n\n", end=True)) == [(b"data: 2\n\n", True)]
    assert talk.inflight == {"sim-1": 0}, "freed with the last byte, not when Envoy closes"
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"natural": 1}


def test_a_get_is_answered_on_its_headers() -> None:
    talk = make(A)
    (reply,) = talk.headers(end=True)
    assert picked(reply) == "10.0.0.1:8000"


def test_a_policy_that_reads_the_body_is_asked_at_its_end() -> None:
    talk = make(A, patient=True)
    whole = b'{"model":"m","prompt":"' + b"a" * 150_000 + b'"}'
    assert talk.headers() == []
    assert talk.body(whole[:100_000]) == []
    replies = talk.body(whole[100_000:], end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    chunks = streamed(replies[1:])
    assert b"".join(body for body, _ in chunks) == whole
    assert [end for _, end in chunks] == [False, False, True]


def test_tokens_beside_a_prompt_are_not_passed_on() -> None:
    talk = make(A, patient=True)
    talk.headers()
    replies = talk.body(b'{"model":"m","prompt":"one two","tokens":[5, 7]}', end=True)
    assert streamed(replies[1:]) == [(b'{"model":"m","prompt":"one two"}', True)]


def test_trailers_end_a_held_body() -> None:
    talk = make(A, patient=True)
    talk.headers()
    talk.body(b'{"model":"m"}')
    replies = talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))
    assert [reply.WhichOneof("response") for reply in replies] == [
        "request_headers",
        "request_body",
        "request_trailers",
    ]
    assert streamed(replies[1:2]) == [(b'{"model":"m"}', False)], "the trailers end it, not the body"


def test_trailers_pass_in_both_directions() -> None:
    talk = make(A)
    talk.headers()
    (request,) = talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))
    assert request.WhichOneof("response") == "request_trailers"
    talk.answer()
    (response,) = talk.say(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))
    assert response.WhichOneof("response") == "response_trailers"
    assert talk.inflight == {"sim-1": 0}


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL])
def test_where_envoy_owns_the_body_nothing_is_held_and_nothing_echoed(mode: int) -> None:
    talk = make(A, patient=True)
    (reply,) = talk.headers(modes=(mode, mode))
    assert picked(reply) == "10.0.0.1:8000"
    (body,) = talk.body(b"hello", end=True)
    assert not body.request_body.response.HasField("body_mutation")
    talk.answer()
    (answer,) = talk.answer_body(b"hello", end=True)
    assert not answer.response_body.response.HasField("body_mutation")


def test_an_id_is_made_only_when_there_is_none() -> None:
    (reply,) = make(A).headers(x_request_id="")
    rows = {o.header.key: o.header.raw_value for o in reply.request_headers.response.header_mutation.set_headers}
    assert rows["x-request-id"] == b"fresh-id"
    (reply,) = make(A).headers()
    rows = {o.header.key: o.header.raw_value for o in reply.request_headers.response.header_mutation.set_headers}
    assert "x-request-id" not in rows


@pytest.mark.parametrize(
    ("subset", "allowed"),
    [
        pytest.param(["10.0.0.2:8000"], {"10.0.0.2:8000"}, id="one"),
        pytest.param(["10.0.0.2:1", "10.0.0.3"], {"10.0.0.2:8000", "10.0.0.3:8000"}, id="by address, not port"),
        pytest.param(None, {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"}, id="no hint"),
    ],
)
def test_the_subset_hint(subset: list[str] | None, allowed: set[str]) -> None:
    talk = make(A, B, C)
    (reply,) = talk.headers(subset=subset)
    assert set(picked(reply).split(",")) == allowed


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:8000"]])
def test_a_subset_that_leaves_nobody_is_503(subset: list[str]) -> None:
    talk = make(A)
    (reply,) = talk.headers(subset=subset)
    refused = reply.immediate_response
    assert refused.status.code == 503
    message = b"inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"
    assert refused.body == message
    header = refused.headers.set_headers[0].header
    assert (header.key, header.raw_value) == ("x-llm-d-request-dropped-reason", b"rejected-no-endpoints")
    assert talk.exchange.finished


def test_an_empty_pool_is_503_with_a_body_and_500_without() -> None:
    (reply,) = make().headers()
    assert reply.immediate_response.status.code == 503
    (reply,) = make().headers(end=True)
    assert reply.immediate_response.status.code == 500
    assert reply.immediate_response.body == b"inference error: Internal - no pods available in datastore"


@pytest.mark.parametrize("patient", [False, True])
def test_a_body_over_the_limit_is_413_and_frees_its_place(patient: bool) -> None:
    talk = make(A, patient=patient, max_body=10)
    talk.headers()
    talk.body(b"x" * 10)
    (reply,) = talk.body(b"x")
    assert reply.immediate_response.status.code == 413
    assert b"--max-body" in reply.immediate_response.body
    assert talk.inflight == {"sim-1": 0}


def test_a_client_that_goes_away_frees_its_place() -> None:
    talk = make(A)
    talk.headers()
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"client-disconnect": 1}


def test_the_reservation_follows_the_request_to_who_served_it() -> None:
    talk = make(A, B)
    (reply,) = talk.headers()
    first, second = picked(reply).split(",")
    talk.answer(served=second)
    by_target = {member.endpoint.target: member.inflight for member in talk.director.pool.members}
    assert by_target == {first: 0, second: 1}
    talk.exchange.closed()
    assert set(talk.inflight.values()) == {0}


def test_served_by_someone_we_do_not_know_changes_nothing() -> None:
    talk = make(A)
    talk.headers()
    talk.answer(served="10.9.9.9:1")
    assert talk.inflight == {"sim-1": 1}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x")), id="body first"),
        pytest.param(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()), id="trailers first"),
    ],
)
def test_messages_out_of_order(message: pb.ProcessingRequest) -> None:
    with pytest.raises(OutOfOrder):
        make(A).say(message)


def test_headers_twice() -> None:
    talk = make(A)
    talk.headers()
    with pytest.raises(OutOfOrder):
        talk.headers()
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}


def test_an_empty_message_is_no_message() -> None:
    assert make(A).say(pb.ProcessingRequest()) == []


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
    options = DirectorOptions(rewrite=lambda _model: rewrite)
    metrics = PickerMetrics()
    books = Bookkeeper(metrics, clock=lambda: 0.0)
    director = Director(pool=pool, scheduler=built.scheduler, records=Records(), rng=rng, options=options, books=books)
    talk = Talk(director, max_body=1 << 20)
    talk.metrics = metrics
    return talk


def immediate(replies: list[pb.ProcessingResponse]) -> tuple[int, str]:
    (reply,) = replies
    return reply.immediate_response.status.code, reply.immediate_response.body.decode()


def test_the_model_is_renamed_on_the_way_in_and_back_on_the_way_out() -> None:
    talk = full_talk(A, rewrite="served/model")
    talk.headers()
    replies = talk.body(COMPLETION, end=True)
    assert streamed(replies[1:]) == [(COMPLETION.replace(b"asked", b"served/model"), True)], "and not one byte besides"
    (headers,) = talk.answer()
    assert list(headers.response_headers.response.header_mutation.remove_headers) == ["content-length"]
    answer = b'{"id":"1","model":"served/model","choices":[]}'
    for cut in range(len(answer)):
        talk = full_talk(A, rewrite="served/model")
        talk.headers()
        talk.body(COMPLETION, end=True)
        talk.answer()
        chunks = streamed(talk.answer_body(answer[:cut])) + streamed(talk.answer_body(answer[cut:], end=True))
        assert b"".join(body for body, _ in chunks) == answer.replace(b"served/model", b"asked")
        assert [end for _, end in chunks][-1] is True


def test_what_a_renamer_holds_leaves_before_the_trailers() -> None:
    talk = full_talk(A, rewrite="served/model")
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.answer()
    assert streamed(talk.answer_body(b'x"mod')) == [(b"x", False)]
    replies = talk.say(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))
    assert [reply.WhichOneof("response") for reply in replies] == ["response_body", "response_trailers"]
    assert streamed(replies[:1]) == [(b'"mod', False)]


def test_a_body_is_left_alone_when_nothing_is_renamed() -> None:
    talk = full_talk(A)
    talk.headers()
    assert streamed(talk.body(COMPLETION, end=True)[1:]) == [(COMPLETION, True)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(
            b"no healthy upstream",
            400,
            "inference error: BadRequest - error unmarshaling request bodyMap: "
            "invalid character 'o' in literal null (expecting 'u')",
            id="not JSON",
        ),
        pytest.param(
            b'{"prompt":"x"}', 400, "inference error: BadRequest - model not found in request body", id="model"
        ),
        pytest.param(b'{"model":7}', 400, "inference error: BadRequest - model not found in request body", id="number"),
        pytest.param(
            b'{"model":"' + b"m" * 1025 + b'"}',
            400,
            "inference error: BadRequest - the model's name has 1025 characters: at most 1024 are allowed",
            id="a name that would fill metrics and records",
        ),
    ],
)
def test_bodies_that_are_refused(body: bytes, status: int, words: str) -> None:
    talk = full_talk(A)
    talk.headers()
    assert immediate(talk.body(body, end=True)) == (status, words)
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.refused == {"BadRequest": 1}


@pytest.mark.parametrize(
    "name",
    [
        "x-llm-d-model-name-rewrite",
        "x-llm-d-inference-fairness-id",
        "x-llm-d-inference-objective",
        "x-request-id",
        "user-agent",
        "prefer",
    ],
)
def test_headers_that_are_no_text_harm_nobody(name: str, tmp_path: Path) -> None:
    talk = full_talk(A)
    recorder = DecisionRecorder(tmp_path / "decisions.jsonl", clock=lambda: 0.0)
    talk.director.records.listen(recorder)
    talk.headers(raw={name: b"\xff\xfe"})
    replies = talk.body(COMPLETION, end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    assert (recorder.lines, recorder.errors) == (1, 0)
    assert len(list(read_recording(tmp_path / "decisions.jsonl"))) == 1
    assert talk.metrics.render().decode(), "nor the page of metrics, for ever after"
    json.dumps([record.to_json() for record in talk.director.records.find()])


def test_a_path_that_is_no_text_is_refused_in_words() -> None:
    talk = full_talk(A, config=LEAST_BUSY + "requestHandler: {parsers: [{pluginRef: openai-parser}]}")
    status, words = immediate(talk.headers(raw={":path": b"/\xff"}))
    assert (status, words) == (400, "inference error: BadRequest - no parser claims the path /?")


def test_an_empty_body_is_no_body() -> None:
    talk = full_talk(A)
    talk.headers()
    replies = talk.body(b"", end=True)
    assert picked(replies[0]) == "10.0.0.1:8000"
    assert streamed(replies[1:]) == [(b"", True)]


def test_a_path_of_no_api_passes_unread() -> None:
    talk = full_talk(A)
    (reply,) = talk.headers(path="/metrics")
    assert picked(reply) == "10.0.0.1:8000"
    assert streamed(talk.body(b"anything", end=True)) == [(b"anything", True)]


@pytest.mark.parametrize(
    ("patient", "path", "mode", "spared"),
    [
        pytest.param(False, "/v1/completions", BodyMode.STREAMED, True, id="no parser reads"),
        pytest.param(True, "/metrics", BodyMode.STREAMED, True, id="none reads this path"),
        pytest.param(True, "/v1/completions", BodyMode.STREAMED, False, id="its usage is read"),
        pytest.param(False, "/v1/completions", BodyMode.FULL_DUPLEX_STREAMED, False, id="full duplex does not obey"),
        pytest.param(False, "/v1/completions", BodyMode.NONE, False, id="nothing to spare"),
    ],
)
def test_a_response_body_that_nobody_reads_is_spared(patient: bool, path: str, mode: int, spared: bool) -> None:
    talk = make(A, patient=patient)
    talk.headers(path=path, modes=(BodyMode.NONE, mode))
    (reply,) = talk.answer()
    assert reply.HasField("mode_override") == spared
    if spared:
        assert reply.mode_override == ProcessingMode(response_trailer_mode=ProcessingMode.SEND)


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED])
def test_without_its_body_a_response_ends_with_its_stream(mode: int) -> None:
    talk = make(A)
    talk.headers(modes=(BodyMode.NONE, mode))
    talk.answer()
    assert talk.inflight == {"sim-1": 1}
    talk.exchange.closed()
    assert talk.inflight == {"sim-1": 0}
    assert talk.director.tally.ended == {"natural": 1}


def test_tokens_are_read_from_the_response() -> None:
    talk = full_talk(A)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.answer()
    talk.answer_body(b'{"usage":{"prompt_tokens":7,"completion_tokens":10}}', end=True)
    assert talk.inflight == {"sim-1": 0}


def test_the_pick_waits_for_the_tokens() -> None:
    talk = full_talk(A, config=TOKENIZED, rewrite="served")
    assert talk.headers() == []
    assert talk.body(COMPLETION, end=True) == []
    (asked,) = talk.asked
    assert asked.path == "/v1/completions/render"
    assert asked.body == COMPLETION.replace(b"asked", b"base")
    assert talk.inflight == {"sim-1": 0}, "nothing is decided yet"
    headers, body = talk.tell(Rendered(tokens=token_bytes(range(100))))
    assert picked(headers) == "10.0.0.1:8000"
    assert streamed([body]) == [(COMPLETION.replace(b"asked", b"served"), True)]
    assert talk.inflight == {"sim-1": 1}
    (record,) = talk.director.records.find()
    assert record.request.prompt is not None
    assert record.request.prompt.tokens == 100


def test_without_an_answer_tokens_are_estimated() -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION[:20])
    assert talk.body(COMPLETION[20:], end=True) == []
    headers, body = talk.tell(None)
    assert picked(headers) == "10.0.0.1:8000"
    assert streamed([body]) == [(COMPLETION, True)]
    (record,) = talk.director.records.find()
    assert record.request.prompt is not None
    assert record.request.prompt.tokens == 2


def test_different_texts_of_the_same_tokens_are_the_same_prefix() -> None:
    chains = []
    for text in (b"hello", b"hallo"):
        talk = full_talk(A, config=TOKENIZED)
        talk.headers()
        talk.body(COMPLETION.replace(b"hello", text), end=True)
        talk.tell(Rendered(tokens=token_bytes(range(200))))
        (record,) = talk.director.records.find()
        assert record.request.prompt is not None
        chains.append(record.request.prompt.blocks)
    assert chains[0] == chains[1]
    assert len(chains[0]) == 4, "200 tokens in blocks of 64"


def test_trailers_come_after_a_body_that_waited() -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION)
    assert talk.say(pb.ProcessingRequest(request_trailers=pb.HttpTrailers())) == []
    kinds = [reply.WhichOneof("response") for reply in talk.tell(None)]
    assert kinds == ["request_headers", "request_body", "request_trailers"]


def test_a_refusal_after_the_tokens_ends_the_stream() -> None:
    talk = full_talk(config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    status, _ = immediate(talk.tell(None))
    assert status == 503
    assert talk.exchange.finished


def test_a_fault_after_the_tokens_is_an_answer_too() -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.director.pool.replace([B])
    talk.director.scheduler = None  # type: ignore[assignment]  # the fault
    assert immediate(talk.tell(None)) == (500, "inference error: Internal - internal error")
    assert talk.exchange.finished


@pytest.mark.parametrize("how", ["closed", "answered by Envoy"])
def test_a_request_that_is_gone_waits_for_no_tokens(how: str) -> None:
    talk = full_talk(A, config=TOKENIZED)
    talk.headers()
    talk.body(COMPLETION, end=True)
    assert talk.waiting is not None
    if how == "closed":
        talk.exchange.closed()
    else:
        talk.answer(end=True)
    assert talk.waiting is None


def test_a_body_that_does_not_fit_is_429_and_frees_its_place() -> None:
    talk = make(A, patient=True, max_body=64 << 20)
    talk.headers()
    part = b"x" * 300_000
    assert [talk.body(part) for _ in range(3)] == [[], [], []]
    (reply,) = talk.body(part)
    assert reply.immediate_response.status.code == 429
    assert b"--max-held-bytes" in reply.immediate_response.body
    rows = {o.header.key: o.header.raw_value for o in reply.immediate_response.headers.set_headers}
    assert rows["x-llm-d-request-dropped-reason"] == b"rejected-memory"
    assert talk.exchange.finished
    assert talk.budget.held == 0


def test_the_largest_request_makes_room_for_a_small_one() -> None:
    talk = make(A, patient=True, max_body=64 << 20)
    hog = talk.exchange
    talk.headers()
    talk.body(b"x" * 1_000_000)
    talk.exchange = talk.open()
    talk.headers()
    assert talk.body(b'{"prompt": "' + b"x" * 100_000) == []
    assert hog.finished and not talk.exchange.finished
    (told,) = [pb.ProcessingResponse.FromString(raw) for raw in talk.pushed]
    assert told.immediate_response.status.code == 429
    assert picked(talk.body(b'", "model": "m"}', end=True)[0])
    talk.exchange.closed()
    hog.closed()
    assert talk.budget.held == 0


def test_tiny_parts_and_views_of_large_messages_count_with_all_that_they_keep() -> None:
    talk = make(A, patient=True)
    talk.headers()
    for _ in range(1000):
        talk.body(b"x")
    assert talk.budget.held >= 1000 * 50
    message = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"y" * 5000)).SerializeToString()
    talk.exchange.message(memoryview(message + b"\xa2\x06\xff\x7f" + b"z" * 16_383))
    assert talk.budget.held >= 1000 * 50 + 20_000, "the view keeps what is around it"


def test_large_headers_count_as_long_as_they_are_kept() -> None:
    talk = make(A)
    talk.headers(raw={f"x-{n}": b"v" for n in range(400)})
    assert talk.budget.held > 80_000
    talk.exchange.closed()
    assert talk.budget.held == 0


@pytest.mark.parametrize("begun", [True, False], ids=["headers", "nothing"])
def test_a_request_that_is_not_complete_in_time_is_408(begun: bool) -> None:
    talk = make(A, patient=True)
    if begun:
        talk.headers()
        talk.body(b"{")
    talk.now = 59.0
    talk.deadlines.sweep()
    assert not talk.pushed
    talk.now = 61.0
    talk.deadlines.sweep()
    (told,) = [pb.ProcessingResponse.FromString(raw) for raw in talk.pushed]
    assert told.immediate_response.status.code == 408
    assert b"--body-timeout" in told.immediate_response.body
    assert talk.exchange.finished
    talk.exchange.closed()
    assert talk.budget.held == 0


def test_a_request_that_is_complete_has_all_the_time_for_its_answer() -> None:
    talk = make(A, patient=True)
    talk.headers()
    assert picked(talk.body(b'{"model": "m", "prompt": "p"}', end=True)[0])
    talk.now = 1000.0
    talk.deadlines.sweep()
    assert not talk.pushed and not talk.exchange.finished

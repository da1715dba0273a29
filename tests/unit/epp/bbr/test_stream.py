"""One request as Envoy shows it to the router; answers are read with the official classes."""

import json
import random
from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from pointsman.core.budget import Budget
from pointsman.epp.bbr.adapters import MANAGED, Adapters
from pointsman.epp.bbr.config import default_program, from_text
from pointsman.epp.bbr.kinds import Surroundings
from pointsman.epp.bbr.processors import Tally
from pointsman.epp.bbr.stream import RoutedRequest, Routing
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.wire.grpc import Reply

PROMPT = "Tell me a joke"
MAP = {
    "metadata": {"name": "a", "namespace": "ns", "labels": {MANAGED[0]: "true"}},
    "data": {"baseModel": "base", "adapters": "- lora\n"},
}


class Talk:
    """Speaks as Envoy does."""

    def __init__(self, *, streaming: bool = True, limit: int = 1 << 20, config: str = "", models: str = "") -> None:
        self.tally, self.adapters = Tally(), Adapters()
        self.adapters.take(MAP, label=MANAGED[0])
        self.pushed: list[bytes] = []
        self.now = 0.0
        self.deadlines = Deadlines(seconds=60.0, clock=lambda: self.now)
        around = Surroundings(
            base_of=self.adapters.base_of, tally=self.tally, rng=random.Random(1), clock=lambda: self.now
        )
        self.program = from_text(config, name="f", around=around) if config else default_program(around)
        if models:
            assert self.program.models.take(models, name="models.json") == []
        budget = Budget(limit=1 << 22)
        routing = Routing(
            self.program,
            tally=self.tally,
            budget=budget,
            deadlines=self.deadlines,
            streaming=streaming,
            clock=lambda: self.now,
            max_body=limit,
        )
        self.budget = budget
        self.request = RoutedRequest(self._push, routing=routing)

    def _push(self, *messages: Reply) -> None:
        self.pushed += map(bytes, messages)

    def say(self, **message: Any) -> list[pb.ProcessingResponse]:
        raw = pb.ProcessingRequest(**message).SerializeToString()
        return [pb.ProcessingResponse.FromString(bytes(reply)) for reply in self.request.message(raw)]

    def headers(self, *, end: bool = False) -> list[pb.ProcessingResponse]:
        return self.say(request_headers=pb.HttpHeaders(end_of_stream=end))

    def body(self, body: bytes, *, end: bool = False) -> list[pb.ProcessingResponse]:
        return self.say(request_body=pb.HttpBody(body=body, end_of_stream=end))


def set_by(common: Any) -> dict[str, str]:
    assert common.clear_route_cache == bool(common.header_mutation.set_headers), "a route is chosen anew for a reason"
    return {each.header.key: each.header.raw_value.decode() for each in common.header_mutation.set_headers}


def streamed(replies: list[pb.ProcessingResponse]) -> tuple[bytes, bool]:
    chunks = [reply.request_body.response.body_mutation.streamed_response for reply in replies]
    return b"".join(chunk.body for chunk in chunks), bool(chunks and chunks[-1].end_of_stream)


# The cases of the Go router's own tests (missing, not a text, a model) and the payload processor's empty one, each with
# and without streaming. A model that is not a text was an error of the first routers; since 1.5 it is turned into text.
CASES = [
    pytest.param({"prompt": PROMPT}, {}, id="missing"),
    pytest.param({"model": "", "prompt": PROMPT}, {"X-Gateway-Base-Model-Name": ""}, id="empty"),
    pytest.param(
        {"model": 1, "prompt": PROMPT},
        {"X-Gateway-Model-Name": "1", "X-Gateway-Base-Model-Name": ""},
        id="not a text",
    ),
    pytest.param(
        {"model": "foo", "prompt": PROMPT},
        {"X-Gateway-Model-Name": "foo", "X-Gateway-Base-Model-Name": ""},
        id="a model",
    ),
    pytest.param(
        {"model": "lora", "prompt": PROMPT},
        {"X-Gateway-Model-Name": "lora", "X-Gateway-Base-Model-Name": "base"},
        id="an adapter",
    ),
]


@pytest.mark.parametrize(("document", "expected"), CASES)
def test_a_body_that_envoy_owns(document: dict[str, Any], expected: dict[str, str]) -> None:
    talk = Talk(streaming=False)
    (reply,) = talk.headers()
    assert reply.WhichOneof("response") == "request_headers"
    assert not reply.request_headers.response.header_mutation.set_headers
    (reply,) = talk.body(json.dumps(document).encode(), end=True)
    assert set_by(reply.request_body.response) == expected
    assert not reply.request_body.response.HasField("body_mutation")


@pytest.mark.parametrize(("document", "expected"), CASES)
def test_a_body_that_is_ours(document: dict[str, Any], expected: dict[str, str]) -> None:
    talk, body = Talk(), json.dumps(document).encode()
    assert talk.headers() == []
    headers, *rest = talk.body(body, end=True)
    assert set_by(headers.request_headers.response) == {"Content-Length": str(len(body)), **expected}
    assert streamed(rest) == (body, True)


def test_a_large_body_goes_back_in_pieces_that_envoy_takes() -> None:
    talk, body = Talk(), json.dumps({"model": "foo", "prompt": "a" * 70_000}).encode()
    talk.headers()
    headers, *rest = talk.body(body, end=True)
    assert set_by(headers.request_headers.response)["X-Gateway-Model-Name"] == "foo"
    chunks = [reply.request_body.response.body_mutation.streamed_response for reply in rest]
    assert [(len(chunk.body), chunk.end_of_stream) for chunk in chunks] == [(62_000, False), (len(body) - 62_000, True)]
    assert streamed(rest) == (body, True)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_answer_comes_as_soon_as_the_model_is_here(chunk: int) -> None:
    body = json.dumps(
        {"n": {"model": "no"}, "t": ["model", '"model": 1'], "model": "lora", "prompt": "x" * 5000}
    ).encode()
    talk = Talk()
    talk.headers()
    sent, answered_at = b"", None
    for at in range(0, len(body), chunk):
        replies = talk.body(body[at : at + chunk], end=at + chunk >= len(body))
        if replies and answered_at is None:
            answered_at = at + chunk
            assert set_by(replies[0].request_headers.response) == {
                "X-Gateway-Model-Name": "lora",
                "X-Gateway-Base-Model-Name": "base",
            }
            replies = replies[1:]
        sent += streamed(replies)[0]
    assert sent == body
    assert answered_at is not None and answered_at < 1100, "and not at the end of the body"
    assert talk.budget.held == 0


def test_what_is_not_json_is_400() -> None:
    talk = Talk()
    talk.headers()
    (reply,) = talk.body(b"no healthy upstream", end=True)
    answer = reply.immediate_response
    assert answer.status.code == 400
    assert answer.body.startswith(b"inference error: BadRequest - failed to parse request body: invalid character 'o'")
    assert talk.tally.refused == {"BadRequest": 1}


@pytest.mark.parametrize("chunk", [16, 1 << 20])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("a\nx-evil: 1", b"model has control characters"),
        ("a\r\nb", b"model has control characters"),
        ("a\0", b"model has control characters"),
        ("m" * 5000, b"model has 5000 characters: a header takes 4096 at most"),
    ],
)
def test_what_no_header_can_hold_is_the_client_s_mistake(model: str, words: bytes, chunk: int) -> None:
    talk, body = Talk(), json.dumps({"model": model, "prompt": PROMPT}).encode()
    talk.headers()
    replies: list[pb.ProcessingResponse] = []
    for at in range(0, len(body), chunk):
        if not talk.request.finished:
            replies += talk.body(body[at : at + chunk], end=at + chunk >= len(body))
    (reply,) = replies
    assert reply.immediate_response.status.code == 400
    assert words in reply.immediate_response.body


def test_headers_without_a_body_and_trailers() -> None:
    talk = Talk()
    (reply,) = talk.headers(end=True)
    assert reply.WhichOneof("response") == "request_headers"
    talk = Talk()
    talk.headers()
    assert talk.body(b'{"model":') == []
    assert talk.body(b'"foo"}') != []
    assert [r.WhichOneof("response") for r in talk.say(request_trailers=pb.HttpTrailers())] == ["request_trailers"]
    talk = Talk()
    talk.headers()
    talk.body(b'{"prompt":"x"}')
    kinds = [reply.WhichOneof("response") for reply in talk.say(request_trailers=pb.HttpTrailers())]
    assert kinds == ["request_headers", "request_body", "request_trailers"]


def test_responses_pass() -> None:
    talk = Talk()
    (reply,) = talk.say(response_headers=pb.HttpHeaders())
    assert reply.WhichOneof("response") == "response_headers"
    (reply,) = talk.say(response_body=pb.HttpBody(body=b"x", end_of_stream=True))
    assert reply.response_body.response.body_mutation.streamed_response.body == b"x"
    (reply,) = talk.say(response_trailers=pb.HttpTrailers())
    assert reply.WhichOneof("response") == "response_trailers"


def test_a_body_may_be_too_large_or_too_slow() -> None:
    talk = Talk(limit=100)
    talk.headers()
    (reply,) = talk.body(b'{"prompt":"' + b"x" * 200)
    assert reply.immediate_response.status.code == 413
    talk = Talk()
    talk.headers()
    talk.body(b'{"prompt":"')
    talk.now = 61.0
    talk.deadlines.sweep()
    (raw,) = talk.pushed
    assert pb.ProcessingResponse.FromString(raw).immediate_response.status.code == 408
    talk.request.closed()
    assert talk.budget.held == 0


SELECTING = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
- {type: model-selector}
- {type: model-group-name-filter}
- {type: inflight-requests-scorer}
- {type: request-metadata-extractor}
- {type: model-name-to-header, parameters: {headerName: X-Chosen}}
- {type: model-config-datasource, parameters: {modelsPath: /etc/ipp/models.json}}
profiles:
- name: default
  plugins:
    request:
    - {pluginRef: model-selector}
    - {pluginRef: model-group-name-filter}
    - {pluginRef: inflight-requests-scorer, weight: 1}
    - {pluginRef: body-field-to-header}
postProcessing: [{pluginRef: model-name-to-header}]
datalayer:
  extractors: [{pluginRef: request-metadata-extractor}]
  datasources: [{pluginRef: model-config-datasource}]
"""
MODELS = '{"models": [{"name": "small"}, {"name": "ärge"}], "groups": [{"name": "big", "models": ["ärge"]}]}'


@pytest.mark.parametrize("chunk", [5, 1000])
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"prompt": "x", "model": "auto/big", "n": 1}, {"prompt": "x", "model": "ärge", "n": 1}),
        ({"model": "small", "prompt": "x"}, {"model": "small", "prompt": "x"}),
    ],
)
def test_a_selector_lets_the_body_name_the_model_that_it_chose(
    document: dict[str, Any], expected: dict[str, Any], chunk: int
) -> None:
    talk, body = Talk(config=SELECTING, models=MODELS), json.dumps(document).encode()
    talk.headers()
    replies: list[pb.ProcessingResponse] = []
    for at in range(0, len(body), chunk):
        replies += talk.body(body[at : at + chunk], end=at + chunk >= len(body))
    headers, *rest = replies
    assert set_by(headers.request_headers.response)["X-Gateway-Model-Name"] == expected["model"]
    sent, end = streamed(rest)
    assert (sent.decode(), end) == (json.dumps(expected, ensure_ascii=False), True), "and no other byte is changed"
    (reply,) = talk.say(response_headers=pb.HttpHeaders())
    (echoed,) = reply.response_headers.response.header_mutation.set_headers
    assert (echoed.header.key, echoed.header.raw_value.decode()) == ("X-Chosen", expected["model"])


def test_a_body_without_a_model_is_given_one_where_envoy_owns_it_too() -> None:
    talk = Talk(config=SELECTING, models='{"models": [{"name": "only"}]}', streaming=False)
    talk.headers()
    (reply,) = talk.body(b'{"prompt": "x"}', end=True)
    assert set_by(reply.request_body.response) == {"X-Gateway-Model-Name": "only"}
    assert json.loads(reply.request_body.response.body_mutation.body) == {"model": "only", "prompt": "x"}


@pytest.mark.parametrize(
    ("model", "models", "status", "words"),
    [
        ("unknown", MODELS, 429, b"ResourceExhausted - no models available after filtering"),
        ("auto/", MODELS, 429, b"no models available after filtering"),
        (7, MODELS, 429, b"no models available after filtering"),
        ("auto", "{}", 500, b"no candidate models available"),
    ],
)
def test_what_no_model_may_serve_is_refused(model: object, models: str, status: int, words: bytes) -> None:
    talk = Talk(config=SELECTING, models=models)
    talk.headers()
    (reply,) = talk.body(json.dumps({"model": model}).encode(), end=True)
    assert reply.immediate_response.status.code == status
    assert words in reply.immediate_response.body


def test_requests_are_counted_from_the_choice_to_their_end_however_they_end() -> None:
    talk = Talk(config=SELECTING, models=MODELS)
    requests = [talk.request, *(RoutedRequest(talk._push, routing=talk.request._routing) for _ in range(3))]
    for request in requests:
        talk.request = request
        talk.headers()
        talk.body(b'{"model": "auto"}', end=True)
    assert sorted(model.inflight for model in talk.program.models.candidates) == [2, 2], "always the idler"
    for request in requests:
        request.closed()
        request.closed()
    assert [model.inflight for model in talk.program.models.candidates] == [0, 0]


def test_what_a_response_cost_is_read_from_its_usage() -> None:
    config = SELECTING.replace(
        "type: request-metadata-extractor", "type: model-cost-extractor, name: request-metadata-extractor"
    )
    models = '{"models": [{"name": "m", "pricing": {"inputPerMillion": 1, "outputPerMillion": 10}}]}'
    talk = Talk(config=config, models=models)
    talk.headers()
    talk.body(b'{"model": "auto"}', end=True)
    body = b'{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20}}'
    for part, end in ((body[:30], False), (body[30:], True)):
        talk.say(response_body=pb.HttpBody(body=part, end_of_stream=end))
    talk.request.closed()
    (model,) = talk.program.models.candidates
    assert model.costs.count == 1
    assert model.costs.trimmed_mean(0, 1) == pytest.approx(300e-6)

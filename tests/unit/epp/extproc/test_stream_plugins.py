"""What plugins, rewrites and metrics make of requests and responses, seen from Envoy's side of the stream."""

import json
import random

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.unit.epp.extproc.talk import COMPLETION, A, B, Talk, full_talk, immediate, picked, streamed

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.refusals import Internal, Refusal, ResourceExhausted, ServiceUnavailable
from pointsman.epp.schedule.director import Director
from pointsman.epp.schedule.records import Records

PREFIX = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: prefix-cache-scorer}]\n"


def chain_of(talk: Talk, model: str, *, size: int = 2000, chunk: int = 100_000) -> list[int]:
    """Send a prompt and return the hashes that it was looked up by."""
    talk.exchange = talk.open()
    talk.headers()
    body = json.dumps({"model": model, "prompt": "x" * size}).encode()
    parts = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    for part in parts[:-1]:
        talk.body(part)
    talk.body(parts[-1], end=True)
    (record,) = talk.director.records.find(last=1)
    assert record.request.prompt is not None
    return list(record.request.prompt.blocks)


def test_two_names_of_one_model_share_what_is_cached() -> None:
    aliased, direct = full_talk(A, config=PREFIX, rewrite="base"), full_talk(A, config=PREFIX)
    assert chain_of(aliased, "alias") == chain_of(aliased, "other-alias") == chain_of(direct, "base")
    assert chain_of(direct, "alias") != chain_of(direct, "base")


def test_a_prompt_that_is_hashed_ahead_is_hashed_for_the_model_that_serves() -> None:
    talk = full_talk(A, config=PREFIX, rewrite="base")
    whole = chain_of(talk, "alias", size=200_000, chunk=1 << 20)
    assert chain_of(talk, "alias", size=200_000, chunk=10_000) == whole
    assert "model_rewrite_decisions_total" in talk.metrics.render().decode()
    (row,) = [
        line
        for line in talk.metrics.render().decode().splitlines()
        if line.startswith("llm_d_epp_model_rewrite_decisions_total{")
    ]
    assert row.endswith(" 2"), "drawn, and counted, once for each request"


def test_a_native_request_of_sglang_needs_no_model() -> None:
    config = "requestHandler: {parsers: [{pluginRef: sglang}]}\nplugins: [{type: sglanghttp-parser, name: sglang}]"
    talk = full_talk(A, config=f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{config}")
    talk.headers(path="/generate")
    body = b'{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":5}}'
    headers, sent = talk.body(body, end=True)
    assert picked(headers) == "10.0.0.1:8000"
    assert streamed([sent]) == [(body, True)]


def test_garbage_is_not_forwarded_to_a_grpc_service() -> None:
    config = "requestHandler: {parsers: [{pluginRef: grpc}]}\nplugins: [{type: vllmgrpc-parser, name: grpc}]"
    talk = full_talk(A, config=f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{config}")
    talk.headers(path="/vllm.grpc.engine.VllmEngine/Generate")
    assert immediate(talk.body(b"garbage", end=True))[0] == 400


VERIFY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: destination-endpoint-served-verifier}]
"""


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (None, "fail: missing envoy lb metadata"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("192.0.2.9:3000", "192.0.2.9:3000"),
    ],
)
def test_a_gateway_that_does_not_say_whom_it_used_is_not_taken_at_the_picks_word(
    served: str | None, expected: str
) -> None:
    talk = full_talk(A, config=VERIFY)
    talk.headers()
    talk.body(COMPLETION, end=True)
    (reply,) = talk.answer(served=served or "")
    changed = reply.response_headers.response.header_mutation.set_headers
    values = {each.header.key: each.header.raw_value.decode() for each in changed}
    assert values["x-conformance-test-served-endpoint"] == expected


def counted(talk: Talk, name: str) -> dict[str, float]:
    """Return the samples of a family by their labels."""
    rows = [line for line in talk.metrics.render().decode().splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return {row.rpartition(" ")[0].removeprefix(name): float(row.rpartition(" ")[2]) for row in rows}


def test_a_request_without_a_body_is_no_request_for_a_model() -> None:
    talk = full_talk(A)
    talk.headers(path="/v1/models", end=True)
    talk.answer()
    assert counted(talk, "llm_d_epp_request_total") == {}
    assert counted(talk, "llm_d_epp_scheduler_attempts_total") == {}
    assert counted(talk, "llm_d_epp_request_error_total") == {}


def test_a_response_without_a_status_is_no_error_of_the_model_server() -> None:
    talk = full_talk(A)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.say(pb.ProcessingRequest(response_headers=pb.HttpHeaders()))
    assert counted(talk, "llm_d_epp_request_error_total") == {}


def test_the_size_of_a_body_that_passes_unread_counts() -> None:
    config = "requestHandler: {parsers: [{pluginRef: passthrough-parser}]}"
    talk = full_talk(A, config=f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{config}")
    talk.headers()
    talk.body(b"12345")
    assert sum(counted(talk, "llm_d_epp_request_size_bytes_count").values()) == 0
    talk.body(b"67890", end=True)
    assert sum(counted(talk, "llm_d_epp_request_size_bytes_sum").values()) == 10
    assert sum(counted(talk, "llm_d_epp_request_size_bytes_count").values()) == 1


def test_cached_tokens_count_only_where_they_are_said() -> None:
    talk = full_talk(A)
    talk.headers()
    talk.body(COMPLETION, end=True)
    talk.answer()
    talk.answer_body(b'{"usage":{"prompt_tokens":3,"completion_tokens":2}}', end=True)
    assert sum(counted(talk, "llm_d_epp_request_input_tokens_count").values()) == 1
    assert sum(counted(talk, "llm_d_epp_request_cached_tokens_count").values()) == 0


def test_only_a_scheduling_that_found_nobody_is_a_failed_attempt() -> None:
    talk = full_talk(A)
    talk.headers()
    talk.body(b"no JSON", end=True)
    assert counted(talk, "llm_d_epp_scheduler_attempts_total") == {}
    config = "plugins: [{type: header-based-testing-filter}]"
    talk = full_talk(A, config=f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{config}")
    talk.headers()
    talk.body(COMPLETION, end=True)
    (labels,) = counted(talk, "llm_d_epp_scheduler_attempts_total")
    assert 'status="failure"' in labels


REPORTS = """
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: request-attribute-reporter
  parameters:
    attributes: [{key: {name: x-cost}, expression: usage.prompt_tokens + usage.completion_tokens}]
"""


@pytest.mark.parametrize("modes", [(4, 4), (4, 2)])
def test_the_proxy_is_told_what_a_response_cost_with_its_end(modes: tuple[int, int]) -> None:
    talk = full_talk(A, config=REPORTS)
    talk.headers(modes=modes)
    talk.body(COMPLETION, end=True)
    talk.answer()
    talk.answer_body(b'{"usage":{"prompt_tokens":7,')
    (reply,) = talk.answer_body(b'"completion_tokens":10}}', end=True)
    assert dict(reply.dynamic_metadata)["envoy.lb"]["x-cost"] == 17


def test_an_agents_session_is_its_fairness_id_unless_it_names_one() -> None:
    config = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: agent-identity}]"
    pool, rng = Pool(), random.Random(7)
    pool.replace([A])
    built = Builder(clock=lambda: 0.0, rng=rng).build(load(config, allow_experimental=True))
    talk = Talk(Director(pool=pool, scheduler=built.scheduler, records=Records(), rng=rng), max_body=1 << 20)
    for headers, fairness in (
        ({"session_id": "s"}, "s"),
        ({"session_id": "s", "x-llm-d-inference-fairness-id": "f"}, "f"),
        ({}, "default-flow"),
    ):
        talk.exchange = talk.open()
        talk.headers(raw={name: value.encode() for name, value in headers.items()})
        talk.body(COMPLETION, end=True)
        (record,) = talk.director.records.find(last=1)
        assert record.request.fairness_id == fairness


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (Internal("x"), "rejected-internal"),
        (ResourceExhausted("x"), "rejected-saturated"),
        (ServiceUnavailable("x"), "rejected-no-endpoints"),
        (ResourceExhausted("x", dropped="evicted"), "evicted"),
    ],
)
def test_every_rejection_says_why(refusal: Refusal, reason: str) -> None:
    assert refusal.headers == (("x-llm-d-request-dropped-reason", reason),)


def talk_of(text: str, *endpoints: Endpoint) -> Talk:
    """Return a talk with a configuration in which everything is allowed."""
    pool, rng = Pool(), random.Random(7)
    pool.replace(endpoints)
    head = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
    built = Builder(clock=lambda: 0.0, rng=rng).build(load(head + text, allow_experimental=True))
    books = Bookkeeper(PickerMetrics(), clock=lambda: 0.0)
    director = Director(pool=pool, scheduler=built.scheduler, records=Records(), rng=rng, books=books)
    return Talk(director, max_body=1 << 20)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/?limit=5"])
def test_the_models_of_all_endpoints_are_listed(path: str) -> None:
    talk = talk_of("plugins: [{type: models-responder}]", A, B)
    assert immediate(talk.headers(path=path, end=True))[0] == 503, "while nobody has said anything"
    first, second = talk.director.pool.members
    first.served({"base": "", "lora": "base"})
    second.served({"base": "", "other": ""})
    talk.exchange = talk.open()
    status, body = immediate(talk.headers(path=path, end=True))
    assert status == 200
    assert [(each["id"], each["parent"]) for each in json.loads(body)["data"]] == [
        ("base", None),
        ("lora", "base"),
        ("other", None),
    ]
    talk.exchange = talk.open()
    assert picked(talk.headers(path="/v1/other", end=True)[0]), "others go on"
    assert sorted(talk.inflight.values()) == [0, 1]


def test_a_client_may_ask_where_it_would_be_sent() -> None:
    talk = talk_of("plugins: [{type: reserve-endpoint}]", A)
    talk.headers(prefer="reserve-endpoint")
    (reply,) = talk.body(COMPLETION, end=True)
    answer = reply.immediate_response
    headers = {each.header.key: each.header.raw_value.decode() for each in answer.headers.set_headers}
    assert answer.status.code == 204
    assert headers == {"x-llm-d-reserved-host-port": "10.0.0.1:8000", "Preference-Applied": "reserve-endpoint"}
    assert talk.inflight == {"sim-1": 0}, "nothing was sent"
    talk = talk_of("plugins: []", A)
    talk.headers(prefer="reserve-endpoint")
    assert immediate(talk.body(COMPLETION, end=True))[0] == 500, "nobody allows it, so it is not forwarded either"


def test_who_asked_where_it_would_be_sent_counts_as_if_it_had_been() -> None:
    disagg = (
        "plugins: [{type: reserve-endpoint}, {type: prefix-cache-scorer}, {type: always-disagg-pd-decider}, "
        "{type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}]\n"
        "schedulingProfiles: [{name: decode, plugins: [{pluginRef: prefix-cache-scorer}]}, "
        "{name: prefill, plugins: [{pluginRef: prefix-cache-scorer}]}]"
    )
    talk = talk_of(disagg, A)
    talk.headers(prefer="reserve-endpoint")
    (reply,) = talk.body(COMPLETION, end=True)
    headers = {each.header.key: each.header.raw_value for each in reply.immediate_response.headers.set_headers}
    assert headers["x-prefiller-host-port"] == b"10.0.0.1:8000", "what a sidecar would be told"
    talk.exchange = talk.open()
    talk.headers(prefer="if-available")
    assert picked(talk.body(COMPLETION, end=True)[0]), "its prefix is where it was placed"


def test_what_has_no_body_cannot_be_placed() -> None:
    talk = talk_of("plugins: [{type: reserve-endpoint}]", A)
    assert immediate(talk.headers(prefer="reserve-endpoint", end=True))[0] == 400
    assert talk.inflight == {"sim-1": 0}

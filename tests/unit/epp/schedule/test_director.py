"""From a request to a reservation: llm-d's pipeline, its golden case, and the burst that must spread."""

import random
from typing import Any

import msgspec
import pytest

from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import load
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import CacheConfig, EndpointMetrics, Lora
from pointsman.epp.request.refusals import (
    BadRequest,
    Internal,
    PreconditionFailed,
    ResourceExhausted,
    ServiceUnavailable,
)
from pointsman.epp.request.request import MediaItem, Prompt, Request
from pointsman.epp.request.rewrites import Rewritten
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.records import Records

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
FOUR = HEAD + (
    "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, "
    "{type: prefix-cache-scorer}, {type: lora-affinity-scorer}]"
)


def pod(number: int, **values: Any) -> tuple[Endpoint, EndpointMetrics]:
    labels = values.pop("labels", {})
    endpoint = Endpoint(name=f"pod{number}", address=f"192.168.1.{number}", port=8000, labels=labels)
    return endpoint, EndpointMetrics(updated_at=0.0, **values)


def build(config: str = "", **options: Any) -> Built:
    return Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(config, **options))


def direct(
    *pods: tuple[Endpoint, EndpointMetrics], config: str = "", options: DirectorOptions | None = None, **loading: Any
) -> Director:
    pool = Pool(clock=lambda: 0.0)
    pool.replace([endpoint for endpoint, _ in pods])
    for member, (_, metrics) in zip(pool.members, pods, strict=True):
        member.scraped(metrics, attributes={}, mark=member.mark())
    scheduler = build(config, **loading).scheduler
    return Director(pool=pool, scheduler=scheduler, records=Records(), rng=random.Random(7), options=options)


def ask(director: Director, **values: Any) -> str:
    headers = values.pop("headers", {})
    request = Request(id=values.pop("id", "r-1"), headers=headers, **values)
    return director.direct(request)[0].members[0].endpoint.name


def lora(*running: str) -> Lora:
    return Lora(running=frozenset(running), max_active=2)


# -- llm-d's own cases ------------------------------------------------------------------------------------------


def test_the_schedulers_golden_case() -> None:
    director = direct(
        pod(1, waiting=0, kv_usage=0.2, lora=lora("foo", "bar")),
        pod(2, waiting=0, kv_usage=0.2, lora=lora("foo", "critical")),
        pod(3, waiting=10, kv_usage=0.8, lora=lora("foo")),
        config=FOUR,
    )
    assert ask(director, model="critical") == "pod2"
    (record,) = director.records.find("r-1")
    assert record.to_json()["candidates"][1]["score"] == pytest.approx(2.8)


@pytest.mark.parametrize(
    ("pods", "picked"),
    [
        pytest.param([(3, 0.2, ()), (0, 0.1, ()), (10, 0.2, ())], "pod2", id="lower queue and kv"),
        pytest.param(
            [(0, 0.2, ("foo", "bar")), (0, 0.1, ("foo", "T")), (10, 0.2, ("foo", "bar"))], "pod2", id="active LoRA"
        ),
        pytest.param(
            [(10, 0.2, ("foo", "bar")), (10, 0.4, ("foo", "T")), (10, 0.3, ("foo",))], "pod2", id="LoRA despite kv"
        ),
        pytest.param(
            [(6, 0.2, ("foo", "bar", "T")), (0, 0.85, ("foo",)), (10, 0.9, ("foo",))], "pod1", id="no shed by default"
        ),
        pytest.param([(4, 0.2, ("foo", "bar", "T")), (4, 0.85, ("foo", "T"))], "pod1", id="split body"),
    ],
)
def test_the_hermetic_cases(pods: list[tuple[int, float, tuple[str, ...]]], picked: str) -> None:
    made = [pod(at + 1, waiting=q, kv_usage=kv, lora=lora(*models)) for at, (q, kv, models) in enumerate(pods)]
    assert ask(direct(*made, config=FOUR), model="T") == picked


def test_nobody_is_503_and_filters_that_leave_nobody_429() -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        ask(direct())
    assert caught.value.dropped == "rejected-no-endpoints"
    config = HEAD + "plugins: [{type: prefill-filter}]"
    with pytest.raises(ResourceExhausted, match="failed to find target endpoint") as drained:
        ask(direct(pod(1), config=config))
    assert drained.value.dropped == "rejected-saturated"


@pytest.mark.parametrize(
    ("priority", "waiting", "admitted"),
    [
        pytest.param(0, 100, True, id="not sheddable, saturated"),
        pytest.param(5, 100, True, id="important, saturated"),
        pytest.param(-1, 0, True, id="sheddable, idle"),
        pytest.param(-1, 100, False, id="sheddable, saturated"),
    ],
)
def test_legacy_admission(priority: int, waiting: int, admitted: bool) -> None:
    options = DirectorOptions(priority_of={"o": priority}.__getitem__)
    director = direct(pod(1, waiting=waiting), options=options)
    headers = {"x-llm-d-inference-objective": "o"}
    if admitted:
        assert ask(director, headers=headers) == "pod1"
    else:
        with pytest.raises(ResourceExhausted, match=r"^system saturated, sheddable request dropped$") as caught:
            ask(director, headers=headers)
        assert caught.value.dropped == "rejected-saturated"
        assert director.tally.refused == {"ResourceExhausted": 1}


@pytest.mark.parametrize(
    ("headers", "rule", "target"),
    [
        pytest.param({}, "", "m", id="as the client says"),
        pytest.param({"x-llm-d-model-name-rewrite": "h"}, "", "h", id="header"),
        pytest.param({"x-gateway-model-name-rewrite": "h"}, "", "h", id="the header's old name"),
        pytest.param({"x-llm-d-model-name-rewrite": "h"}, "r", "r", id="a rule overrides the header"),
    ],
)
def test_model_rewrite(headers: dict[str, str], rule: str, target: str) -> None:
    director = direct(
        pod(1), options=DirectorOptions(rewrite=lambda _model: Rewritten(rewrite="a", model=rule) if rule else None)
    )
    decision, _ = director.direct(Request(id="r", headers=headers, model="m"))
    assert decision.target_model == target


def test_a_request_that_should_name_a_model_and_does_not_is_400() -> None:
    with pytest.raises(BadRequest, match=r"^model not found in request body$"):
        ask(direct(pod(1)), wants_model=True)
    assert (
        ask(
            direct(pod(1), options=DirectorOptions(rewrite=lambda _model: Rewritten(rewrite="a", model="base"))),
            wants_model=True,
        )
        == "pod1"
    )


def test_objective_priority_and_fairness_reach_the_plugins() -> None:
    director = direct(pod(1), options=DirectorOptions(priority_of={"gold": 4}.__getitem__))
    headers = {"x-gateway-inference-objective": "gold", "x-llm-d-inference-fairness-id": "tenant"}
    ask(director, headers=headers, model="m")
    (record,) = director.records.find("r-1")
    assert (record.request.objective, record.request.priority, record.request.fairness_id) == ("gold", 4, "tenant")
    ask(director, id="r-2")
    assert director.records.find("r-2")[0].request.fairness_id == "default-flow"


def test_an_admitter_that_says_no_is_500() -> None:
    config = HEAD + "plugins: [{type: probabilistic-admitter}, {type: concurrency-detector}]\n"
    config += "flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n"
    config += "schedulingProfiles: [{name: default, plugins: []}]"
    director = direct(pod(1, waiting=100), config=config, options=DirectorOptions(priority_of=lambda _: -1))
    with pytest.raises(Internal, match=r"^request cannot be admitted: "):
        ask(director, headers={"x-llm-d-inference-objective": "o"})


@pytest.mark.parametrize(
    ("prefer", "warm", "refused"),
    [
        pytest.param("if-available", True, False, id="cached"),
        pytest.param("if-available", False, True, id="not cached"),
        pytest.param("return=minimal", False, False, id="another preference"),
    ],
)
def test_prefer_if_available(prefer: str, warm: bool, refused: bool) -> None:
    director = direct(pod(1))
    prompt = Prompt(tokens=64, block_tokens=64, blocks=(1,))
    if warm:
        ask(director, id="first", prompt=prompt)
    if refused:
        with pytest.raises(PreconditionFailed, match=r"^no decode worker has the requested KV cache$"):
            ask(director, headers={"prefer": prefer}, prompt=prompt)
    else:
        assert ask(director, headers={"prefer": prefer}, prompt=prompt) == "pod1"


def test_the_same_prompt_goes_where_it_is_cached() -> None:
    director = direct(*(pod(n) for n in range(1, 9)))
    prompt = Prompt(tokens=256, block_tokens=64, blocks=(1, 2, 3, 4))
    first, reservation = director.direct(Request(id="0", headers={}, prompt=prompt))
    reservation.release()
    for at in range(20):
        decision, reservation = director.direct(Request(id=str(at), headers={}, prompt=prompt))
        assert decision.members[0] is first.members[0]
        reservation.release()


# -- reservations -----------------------------------------------------------------------------------------------


def burst(*, reserve: bool, metrics: bool, size: int = 100) -> list[int]:
    """Send a burst within one scrape interval and return how many went to each of ten endpoints."""
    director = direct(*(pod(n, waiting=n % 2) for n in range(1, 11)))
    if not metrics:
        for member in director.pool.members:
            member.age(1e9, threshold=2.0)
    counts = dict.fromkeys((member.endpoint.name for member in director.pool.members), 0)
    for at in range(size):
        decision, reservation = director.direct(Request(id=str(at), headers={}))
        counts[decision.members[0].endpoint.name] += 1
        if not reserve:
            reservation.release()
    return list(counts.values())


@pytest.mark.parametrize("metrics", [True, False], ids=["fresh metrics", "no metrics"])
def test_a_burst_within_one_scrape_spreads_because_every_pick_counts_at_once(metrics: bool) -> None:
    spread = burst(reserve=True, metrics=metrics)
    assert max(spread) - min(spread) <= 2, spread
    assert sum(spread) == 100


def test_the_same_burst_without_reservations_herds() -> None:
    herded = burst(reserve=False, metrics=True)
    assert min(herded) == 0, "half of the endpoints had one request waiting at the scrape, and got nothing"
    assert max(herded) > 12


def test_with_fresh_metrics_and_no_pick_since_the_formulas_are_exact() -> None:
    director = direct(pod(1, waiting=10, kv_usage=0.8), pod(2, waiting=5, kv_usage=0.5), pod(3))
    ask(director)
    scores = [row["score"] for row in director.records.find("r-1")[0].to_json()["candidates"]]
    assert scores == pytest.approx([2 * 0 + 2 * 0.2, 2 * 0.5 + 2 * 0.5, 2 * 1 + 2 * 1])


def test_a_request_reserves_its_tokens_until_they_are_prefilled() -> None:
    director = direct(pod(1), config=HEAD + "plugins: [{type: token-load-scorer}]")
    _, reservation = director.direct(Request(id="r", headers={}, prompt=Prompt(tokens=500)))
    (member,) = director.pool.members
    assert (member.view.inflight_requests, member.view.inflight_tokens) == (1, 500)
    reservation.first_byte()
    assert (member.view.inflight_requests, member.view.inflight_tokens) == (1, 0)
    reservation.release()
    assert (member.view.inflight_requests, member.view.inflight_tokens) == (0, 0)


DISAGG = HEAD + (
    "plugins: [{type: prefill-filter}, {type: decode-filter}, {type: always-disagg-pd-decider}, "
    "{type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}, "
    "{type: inflight-load-producer}]\n"
    "schedulingProfiles: [{name: prefill, plugins: [{pluginRef: prefill-filter}]}, "
    "{name: decode, plugins: [{pluginRef: decode-filter}]}]"
)


def roles(*names: str) -> list[tuple[Endpoint, EndpointMetrics]]:
    return [pod(at + 1, labels={"llm-d.ai/role": role}) for at, role in enumerate(names)]


def test_tokens_of_media_are_counted_until_they_are_prefilled() -> None:
    director = direct(pod(1), config=HEAD + "plugins: [{type: token-load-scorer}]")
    prompt = Prompt(tokens=500, media_tokens=300)
    _, reservation = director.direct(Request(id="r", headers={}, prompt=prompt))
    view = director.pool.members[0].view
    assert (view.inflight_tokens, view.inflight_media) == (500, 300)
    reservation.first_byte()
    reservation.release()
    view = director.pool.members[0].view
    assert (view.inflight_tokens, view.inflight_media) == (0, 0)


def test_prefill_elsewhere_is_named_in_a_header_and_counted_until_the_first_byte() -> None:
    director = direct(*roles("prefill", "decode"), config=DISAGG)
    decision, reservation = director.direct(Request(id="r", headers={}, prompt=Prompt(tokens=100)))
    assert decision.destination == "192.168.1.2:8000"
    assert decision.set_headers == [("x-prefiller-host-port", "192.168.1.1:8000")]
    assert list(decision.remove_headers) == ["x-encoder-hosts-ports"]
    assert [member.inflight for member in director.pool.members] == [1, 1]
    reservation.first_byte()
    assert [member.inflight for member in director.pool.members] == [0, 1]
    reservation.release()
    assert [member.inflight for member in director.pool.members] == [0, 0]
    assert [member.tokens for member in director.pool.members] == [0, 0]


def test_without_a_prefill_endpoint_decode_does_it_alone() -> None:
    director = direct(*roles("decode"), config=DISAGG)
    decision, _ = director.direct(Request(id="r", headers={}, prompt=Prompt(tokens=100)))
    assert decision.destination == "192.168.1.1:8000"
    assert decision.set_headers == []


# -- the rest ---------------------------------------------------------------------------------------------------


def test_a_request_without_a_body_goes_to_anyone() -> None:
    director = direct(pod(1, waiting=100), pod(2))
    seen = {ask(director, id=str(at), has_body=False) for at in range(50)}
    assert seen == {"pod1", "pod2"}
    assert "without a body" in director.records.find("0")[0].reason


def test_session_headers_go_out_with_the_answer() -> None:
    config = HEAD + "plugins: [{type: session-affinity-scorer}]"
    director = direct(pod(1), pod(2), config=config, allow_experimental=True)
    decision, _ = director.direct(Request(id="r", headers={}))
    assert decision.answer is not None
    ((name, token),) = decision.answer(director.pool.members[1].view, None)
    assert ask(director, id="again", headers={name: token}) == "pod2"
    assert direct(pod(1)).direct(Request(id="r", headers={}))[0].answer is None


def test_scores_are_published_when_the_operator_says_so() -> None:
    director = direct(pod(1), pod(2, waiting=5), options=DirectorOptions(emit_scores=True))
    decision, _ = director.direct(Request(id="r", headers={}))
    assert decision.scores == {"192.168.1.1:8000": 4.0, "192.168.1.2:8000": 2.0}
    assert direct(pod(1)).direct(Request(id="r", headers={}))[0].scores == {}


@pytest.mark.parametrize(
    ("options", "headers", "explained"),
    [
        pytest.param(DirectorOptions(), {"x-pointsman-explain": "1"}, False, id="not allowed"),
        pytest.param(DirectorOptions(explain=True), {}, True, id="always"),
        pytest.param(DirectorOptions(explain_on_demand=True), {"x-pointsman-explain": "1"}, True, id="on demand"),
        pytest.param(DirectorOptions(explain_on_demand=True), {}, False, id="not demanded"),
    ],
)
def test_a_decision_is_explained_when_asked_for(
    options: DirectorOptions, headers: dict[str, str], explained: bool
) -> None:
    director = direct(pod(1), pod(2), options=options)
    ask(director, headers=headers)
    row = director.records.find("r-1")[0].to_json()
    assert ("explain" in row) is explained
    if explained:
        (profile,) = row["explain"]["profiles"].values()
        assert set(profile["candidates"][0]["scores"]) == set(profile["weights"])
        points = {each["point"] for each in row["explain"]["plugins"]}
        assert points == {"DataProducer", "PreRequest"}


def test_records_say_why_and_how_ties_were_broken() -> None:
    director = direct(pod(1), pod(2), pod(3, waiting=1))
    ask(director)
    (record,) = director.records.find("r-1")
    assert record.reason == "profile default: score 4 of 3 endpoints' 2–4, drawn from 2 that tie"
    assert director.records.find("nobody") == []


def test_records_are_a_ring_read_from_its_newest_end() -> None:
    records = Records(keep=3)
    director = direct(pod(1))
    director.records = records
    for at in range(5):
        ask(director, id=str(at))
    assert [record.request.id for record in records.find()] == ["4", "3", "2"]
    assert [record.request.id for record in records.find(last=1)] == ["4"]
    assert records.find("0") == []


def test_a_server_whose_block_size_never_stays_fills_no_memory() -> None:
    director = direct(pod(1))
    for size in range(1, 1000):
        member = director.pool.members[0]
        said = EndpointMetrics(cache=CacheConfig(block_tokens=size), updated_at=0.0)
        member.scraped(said, attributes={}, mark=member.mark())
        assert director.needs == director.scheduler.needs([member.view])
    assert len(director.scheduler._needs) <= 64


def test_a_record_can_be_written_whatever_bytes_an_id_was() -> None:
    director = direct(pod(1))
    ask(director, id="\udcff\udcfe", model="\ud800", target_model="\ud800")
    (record,) = director.records.find("\udcff\udcfe")
    row = msgspec.json.decode(msgspec.json.encode(record.to_json()))
    assert (row["request_id"], row["model"]) == ("??", "?")


def test_the_later_decision_for_an_id_is_kept_and_is_the_newer_one() -> None:
    records = Records(keep=3)
    director = direct(pod(1))
    director.records = records
    for at in ("a", "b", "c", "a", "d"):
        ask(director, id=at)
    assert [record.request.id for record in records.find()] == ["d", "a", "c"]


@pytest.mark.parametrize(
    ("prompt", "weight"),
    [
        (Prompt(tokens=1, blocks=[1] * 100), 4000),
        (Prompt(tokens=1, blocks=[1], more=[[1] * 50, [2] * 50]), 4040),
        (Prompt(tokens=1, items=[MediaItem(hash=1)] * 10), 1200),
    ],
    ids=["blocks", "several prompts", "media"],
)
def test_records_are_bounded_by_what_prompts_weigh(prompt: Prompt, weight: int) -> None:
    records = Records(most_bytes=2 * weight + 1)
    director = direct(pod(1))
    director.records = records
    for at in range(5):
        ask(director, id=str(at), prompt=prompt)
    assert [record.weight for record in records.find()] == [weight, weight]


def test_a_plugin_learns_who_is_gone_also_after_a_reload() -> None:
    director = direct(pod(1))
    fresh = build()
    director.use(fresh.scheduler)
    assert director.scheduler is fresh.scheduler
    assert ask(director) == "pod1"


# -- what Envoy says about who served ---------------------------------------------------------------------------

RANKS = HEAD + "plugins: [{type: queue-scorer}, {type: data-parallel-profile-handler, parameters: {primaryPort: 8000}}]"


def test_a_rank_behind_the_address_that_served_has_not_failed() -> None:
    """Ranks of one pod are reached through its first port: that Envoy names that port says nothing against a rank."""
    ranks = [Endpoint(name=f"rank-{n}", address="192.168.1.1", port=8000 + n) for n in range(3)]
    director = direct(
        *((rank, EndpointMetrics(updated_at=0.0, waiting=rank.port == 8000)) for rank in ranks), config=RANKS
    )
    for _ in range(4):
        decision, reservation = director.direct(Request(id="r", headers={}))
        assert decision.destination == "192.168.1.1:8000"
        picked = reservation.member
        director.served(reservation, "192.168.1.1:8000")
        assert reservation.member is picked
    assert len(director.pool.candidates) == 3
    assert director.tally.served_elsewhere == 0


def test_an_endpoint_that_envoy_could_not_reach_is_left_alone() -> None:
    director = direct(pod(1), pod(2, waiting=5))
    for _ in range(2):
        _, reservation = director.direct(Request(id="r", headers={}))
        assert reservation.member is director.pool.members[0]
        director.served(reservation, "192.168.1.2:8000")
        reservation.release()
    assert director.tally.served_elsewhere == 2
    assert director.pool.candidates == (director.pool.members[1],)

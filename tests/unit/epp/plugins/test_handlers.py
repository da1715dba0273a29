"""Profile handlers and the deciders behind them."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, matched, request

from pointsman.epp.plugins.api import Context, Picked
from pointsman.epp.plugins.deciders import PrefixBasedDecider, PrefixBasedParameters
from pointsman.epp.plugins.handlers import Deciders, DisaggParameters, DisaggProfileHandler
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import BadRequest, ResourceExhausted
from pointsman.epp.request.request import Prompt, Request


def picked(*names: str) -> Picked:
    views = [endpoint(name) for name in names]
    return Picked(endpoints=views, candidates=views, scores=[1.0] * len(views))


@pytest.mark.parametrize(
    ("threshold", "prompt_tokens", "cached", "expected"),
    [
        pytest.param(0, 0, 0, False, id="switched off"),
        pytest.param(5, 20, 0, False, id="prompt too short"),
        pytest.param(20, 0, 0, False, id="fewer tokens than the threshold"),
        pytest.param(5, 10, 5, True, id="prompt just long enough, half cached"),
        pytest.param(5, 0, 8, False, id="mostly cached"),
        pytest.param(5, 0, 5, True, id="exactly the threshold"),
        pytest.param(3, 0, 2, True, id="little cached"),
        pytest.param(1, 0, 10, False, id="all cached"),
        pytest.param(5, 0, 0, True, id="nothing cached"),
    ],
)
def test_prefix_based_decider(threshold: int, prompt_tokens: int, cached: int, expected: bool) -> None:
    decider = make("prefix-based-pd-decider", nonCachedTokens=threshold, promptTokens=prompt_tokens)
    seen = matched({"a:8000": cached}, total=10, block_tokens=1, prompt=Prompt(tokens=10))
    assert decider.wants(seen, endpoint("a")) is expected


def test_prefix_based_decider_counts_blocks_in_ram_as_cached() -> None:
    decider = make("prefix-based-pd-decider", nonCachedTokens=512)
    seen = matched({"a:8000": 192}, cached={"a:8000": 240}, total=256, block_tokens=16, prompt=Prompt(tokens=4096))
    assert not decider.wants(seen, endpoint("a"))


def test_prefix_based_decider_says_no_when_it_does_not_know() -> None:
    decider = make("prefix-based-pd-decider", nonCachedTokens=1)
    known = matched({}, total=10, prompt=Prompt(tokens=1000))
    assert not decider.wants(known, None), "no decode endpoint"
    assert not decider.wants(request(prompt=Prompt(tokens=1000)), endpoint("a")), "no match information"
    assert decider.wants(known, endpoint("a"))


@pytest.mark.parametrize("name", ["non_cached_tokens", "prompt_tokens"])
def test_prefix_based_decider_refuses_negative_numbers(name: str) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        PrefixBasedParameters.model_validate({name: -1})


def test_the_other_deciders() -> None:
    assert make("always-disagg-pd-decider").wants(request(), None)
    multimodal = make("always-disagg-multimodal-decider")
    assert multimodal.wants(request(prompt=Prompt(tokens=1, multimodal=True)), None)
    assert not multimodal.wants(request(prompt=Prompt(tokens=1)), None)
    assert not multimodal.wants(request(), None)


class Yes:
    def __init__(self, *, answer: bool) -> None:
        self.answer = answer
        self.asked: list[EndpointView | None] = []

    def wants(self, _request: Request, endpoint: EndpointView | None) -> bool:
        self.asked.append(endpoint)
        return self.answer


def disagg(*profiles: str, prefill: bool = True, encode: bool = True, order: str = "decode-first") -> Any:
    parameters = DisaggParameters.model_validate({"stageOrder": order}).model_copy(
        update={"deciders": Deciders(prefill="p", encode="e")}
    )
    plugins = {"p": Yes(answer=prefill), "e": Yes(answer=encode)}
    context = Context(name="h", clock=lambda: 0.0, rng=None, plugins=plugins, profiles=profiles)  # type: ignore[arg-type] # draws nothing
    return DisaggProfileHandler(parameters, context=context)


def walk(handler: Any, answers: dict[str, Picked | None]) -> list[str]:
    """Run the profiles that the handler asks for, with the given answers."""
    results: dict[str, Picked | None] = {}
    while wanted := [name for name in handler.next_profiles(request(), results) if name not in results]:
        results.update({name: answers[name] for name in wanted})
    return list(results)


ALL: dict[str, Picked | None] = {"decode": picked("d"), "prefill": picked("p"), "encode": picked("e1", "e2")}


@pytest.mark.parametrize(
    ("handler", "ran"),
    [
        pytest.param(disagg("decode", "prefill", "encode"), ["decode", "encode", "prefill"], id="all three"),
        pytest.param(disagg("decode", "prefill"), ["decode", "prefill"], id="no encode profile"),
        pytest.param(disagg("decode", "prefill", prefill=False), ["decode"], id="not worth a prefill"),
        pytest.param(
            disagg("decode", "prefill", "encode", encode=False), ["decode", "prefill"], id="nothing to encode"
        ),
        pytest.param(
            disagg("decode", "prefill", "encode", order="prefill-first", prefill=False),
            ["prefill", "encode", "decode"],
            id="prefill first asks nobody about it",
        ),
    ],
)
def test_disagg_runs_the_stages_that_are_worth_it(handler: Any, ran: list[str]) -> None:
    assert walk(handler, ALL) == ran
    assert handler.conclude(request(), {name: ALL[name] for name in ran}).primary == "decode"


def test_disagg_without_a_decoder_refuses_and_runs_nothing_more() -> None:
    handler = disagg("decode", "prefill")
    assert walk(handler, {"decode": None}) == ["decode"]
    with pytest.raises(ResourceExhausted, match="failed to find available decode workers") as caught:
        handler.conclude(request(), {"decode": None})
    assert caught.value.dropped == "rejected-saturated"


def test_disagg_names_the_stages_in_headers_and_takes_away_what_the_client_says() -> None:
    handler = disagg("decode", "prefill", "encode")
    everything = handler.before_send(request(), ALL, "decode")
    assert everything.set == [("x-prefiller-host-port", "p:8000"), ("x-encoder-hosts-ports", "e1:8000,e2:8000")]
    alone = handler.before_send(request(), {"decode": picked("d"), "prefill": None}, "decode")
    assert alone.set == []
    assert alone.remove == ["x-prefiller-host-port", "x-encoder-hosts-ports"]


def test_disagg_counts_what_it_decided_by_model() -> None:
    handler = disagg("decode", "prefill")
    seen = request(target_model="m")
    handler.conclude(seen, {"decode": picked("d"), "prefill": picked("p")})
    handler.conclude(seen, {"decode": picked("d"), "prefill": None})
    assert handler.decisions == {("m", "prefill-decode"): 1, ("m", "decode-only"): 1}


def test_disagg_understands_the_flat_parameters_of_older_files() -> None:
    flat = {"decodeProfile": "d", "prefillProfile": "p", "deciderPluginName": "x", "encodeDeciderPluginName": "y"}
    read = DisaggParameters.model_validate(flat)
    assert (read.profiles.decode, read.profiles.prefill, read.profiles.encode) == ("d", "p", "encode")
    assert (read.deciders.prefill, read.deciders.encode) == ("x", "y")
    assert list(DisaggProfileHandler.references(read)) == ["x", "y"]


def test_data_parallel_sends_to_the_sidecar_and_names_the_rank() -> None:
    handler = make("data-parallel-profile-handler", primaryPort=9000)
    rank = endpoint("pod", port=8003, target="10.0.0.1:8003")
    results = {"default": Picked(endpoints=[rank], candidates=[rank], scores=[1.0])}
    assert handler.conclude(request(), results).target == "10.0.0.1:9000"
    assert handler.before_send(request(), results, "default").set == [("x-data-parallel-host-port", "10.0.0.1:8003")]


@pytest.mark.parametrize(
    ("profiles", "headers", "ran"),
    [
        pytest.param(("one",), {}, ("one",), id="the only profile"),
        pytest.param(("decode", "prefill"), {}, ("decode",), id="default"),
        pytest.param(("decode", "prefill"), {"epp-profile": "prefill"}, ("prefill",), id="named"),
    ],
)
def test_header_profile(profiles: tuple[str, ...], headers: dict[str, str], ran: tuple[str, ...]) -> None:
    handler = make("header-profile-handler", profiles=profiles)
    assert tuple(handler.next_profiles(request(headers=headers), {})) == ran
    assert handler.next_profiles(request(), {ran[0]: picked("a")}) == ()
    assert handler.conclude(request(), {ran[0]: picked("a")}).primary == ran[0]


def test_header_profile_refuses_a_name_that_nobody_configured() -> None:
    handler = make("header-profile-handler", profiles=("decode", "prefill"))
    with pytest.raises(BadRequest, match="EPP-Profile 'x' names no profile: use one of decode, prefill"):
        handler.next_profiles(request(headers={"epp-profile": "x"}), {})


def test_single_profile() -> None:
    handler = make("single-profile-handler")
    assert tuple(handler.next_profiles(request(), {})) == ("default",)
    assert handler.next_profiles(request(), {"default": picked("a")}) == ()
    with pytest.raises(ResourceExhausted, match="failed to find target endpoint"):
        handler.conclude(request(), {"default": None})


def test_a_decider_is_asked_about_the_decode_pick() -> None:
    decider = PrefixBasedDecider(PrefixBasedParameters(non_cached_tokens=1))
    assert [key.name for key in decider.consumes] == ["PrefixCacheMatchInfo/approx-prefix-cache-producer"]
    handler = disagg("decode", "prefill")
    walk(handler, ALL)
    (asked,) = handler._prefill_decider.asked
    assert asked is not None and asked.name == "d"


@pytest.mark.parametrize(
    ("parameters", "tokens", "ran"),
    [
        pytest.param({}, 1, ["decode", "prefill"], id="always"),
        pytest.param({"threshold": 10}, 9, ["decode"], id="below the threshold"),
        pytest.param({"threshold": 10}, 10, ["decode", "prefill"], id="at the threshold"),
    ],
)
def test_the_old_handler_of_prefill_and_decode(parameters: dict[str, Any], tokens: int, ran: list[str]) -> None:
    handler = make("pd-profile-handler", profiles=("prefill", "decode"), **parameters)
    seen = matched({}, total=1, prompt=Prompt(tokens=tokens))
    results: dict[str, Picked | None] = {}
    while wanted := handler.next_profiles(seen, results):
        results.update({name: ALL[name] for name in wanted})
    assert list(results) == ran
    assert handler.conclude(seen, results).target == ""


def test_the_old_handler_sends_to_the_sidecar_of_a_rank() -> None:
    handler = make("pd-profile-handler", profiles=("prefill", "decode"), primaryPort=9000)
    results = {"decode": picked("d"), "prefill": picked("p")}
    assert handler.conclude(request(), results).target == "d:9000"
    headers = dict(handler.before_send(request(), results, "decode").set)
    assert headers == {"x-prefiller-host-port": "p:8000", "x-data-parallel-host-port": "d:8000"}


def test_ranks_that_may_be_tried_next_are_listed_at_their_sidecars() -> None:
    handler = make("data-parallel-profile-handler", primaryPort=8000)
    views = [endpoint(name, port=8001, address=name) for name in ("a", "b", "a")]
    picked = Picked(endpoints=views, candidates=views, scores=[1.0] * 3)
    assert handler.conclude(request(), {"default": picked}).target == "a:8000,b:8000"
    assert handler.before_send(request(), {"default": picked}, "default").set == [
        ("x-data-parallel-host-port", "a:8001")
    ]

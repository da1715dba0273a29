"""Which way picks are followed: what each needs, which is chosen, and what is said where there is none."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.render.scheduler.installs import ON, WHOLE, merged, resource

from pointsman.render.scheduler.ways import Abilities, choose

SPLIT = Abilities(gateway_api=True, accepted=True, istio=True, pools=True, filters=True)
ONE = replace(SPLIT, split=False)
OFF = replace(SPLIT, understood=False, refusal="InferencePool is not enabled")
SERVICE = {"routing": {"backendType": "Service"}}
THEIRS = {"gateway": None, "routing": {"parentGateway": {"name": "theirs"}}}
UNPATCHED: dict[str, Any] = {"envoyFilter": None}

CHOSEN = [
    pytest.param(SPLIT, {}, "EndpointSlice", id="two namespaces"),
    pytest.param(ONE, {}, "Native", id="one namespace"),
    pytest.param(SPLIT, UNPATCHED, "EndpointSlice", id="two namespaces, nothing patched"),
    pytest.param(ONE, UNPATCHED, "Native", id="one namespace, nothing patched"),
    pytest.param(replace(SPLIT, understood=True), {}, "EndpointSlice", id="Istio has said yes"),
    pytest.param(OFF, {}, "FilterPatch", id="Istio has said no"),
    pytest.param(replace(SPLIT, pools=False), {}, "FilterPatch", id="no InferencePool"),
    pytest.param(SPLIT, SERVICE, "FilterPatch", id="to the Service"),
    pytest.param(replace(SPLIT, istio=False, filters=False), {}, "EndpointSlice", id="another controller"),
    pytest.param(Abilities(), {}, "OwnEnvoy", id="no Gateway API"),
    pytest.param(replace(SPLIT, accepted=False), {}, "OwnEnvoy", id="no class"),
    pytest.param(Abilities(), SERVICE, "OwnEnvoy", id="to the Service, no Gateway API"),
]


@pytest.mark.parametrize(("cluster", "change", "way"), CHOSEN)
def test_chosen(cluster: Abilities, change: dict[str, Any], way: str) -> None:
    choice = choose(resource(**merged(WHOLE, change)).spec, cluster)
    assert (choice.way, choice.reason) == (way, way)


REFUSED = [
    pytest.param(
        OFF,
        UNPATCHED,
        "InferenceExtensionMissing",
        "set ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true in the environment of istiod, 1.28 or newer",
        id="Istio's flag",
    ),
    pytest.param(OFF, UNPATCHED, "InferenceExtensionMissing", "set envoyFilter.enabled", id="or patches"),
    pytest.param(
        replace(SPLIT, pools=False), UNPATCHED, "InferencePoolMissing", "pointsman crds install", id="definitions"
    ),
    pytest.param(
        SPLIT,
        SERVICE | UNPATCHED,
        "NobodyAsksThePicker",
        "routing.backendType is Service, so nobody asks the picker: EnvoyFilters are not allowed: "
        "set envoyFilter.enabled, or set InferencePool",
        id="to the Service, nothing patched",
    ),
    pytest.param(
        replace(SPLIT, istio=False, understood=False, gateway_class="other"),
        {},
        "InferenceExtensionMissing",
        "install a controller of class other that does",
        id="another controller that does not",
    ),
    pytest.param(
        replace(SPLIT, pools=False, filters=False), {}, "InferencePoolMissing", "Istio's definitions", id="EnvoyFilter"
    ),
    pytest.param(Abilities(), THEIRS, "NoGateway", "enable gateway", id="somebody else's gateway, no Gateway API"),
]


@pytest.mark.parametrize(("cluster", "change", "reason", "words"), REFUSED)
def test_refused(cluster: Abilities, change: dict[str, Any], reason: str, words: str) -> None:
    choice = choose(resource(**merged(WHOLE, change)).spec, cluster)
    assert (choice.way, choice.reason) == (None, reason)
    assert words in choice.message


@pytest.mark.parametrize("way", ["EndpointSlice", "RoutePatch", "FilterPatch", "OwnEnvoy"])
def test_asked_for_and_possible(way: str) -> None:
    choice = choose(resource(**merged(WHOLE, {"routing": {"way": way}})).spec, SPLIT)
    assert (choice.way, choice.message.endswith("as routing.way says")) == (way, True)


IMPOSSIBLE = [
    ("Native", SPLIT, {}, "picker and pool are in two namespaces: make them one, or take EndpointSlice"),
    ("EndpointSlice", ONE, {}, "picker and pool are in one namespace, where Native does: take that"),
    ("Native", replace(OFF, split=False), {}, "set ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true"),
    ("EndpointSlice", OFF, {}, "the gateway does not understand routes to pools (InferencePool is not enabled)"),
    ("RoutePatch", OFF, {}, "set ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true"),
    ("RoutePatch", SPLIT, UNPATCHED, "EnvoyFilters are not allowed: set envoyFilter.enabled"),
    ("FilterPatch", SPLIT, UNPATCHED, "EnvoyFilters are not allowed: set envoyFilter.enabled"),
    ("FilterPatch", replace(SPLIT, istio=False), {}, "only Istio can be patched"),
    ("FilterPatch", Abilities(), {}, "the Gateway API is not installed"),
    ("Native", replace(ONE, accepted=False), {}, "GatewayClass istio does not exist or is not accepted"),
]


@pytest.mark.parametrize(("way", "cluster", "change", "words"), IMPOSSIBLE)
def test_asked_for_and_impossible(way: str, cluster: Abilities, change: dict[str, Any], words: str) -> None:
    choice = choose(resource(**merged(WHOLE, change | {"routing": {"way": way}})).spec, cluster)
    assert (choice.way, choice.reason) == (None, "WayNotPossible")
    assert choice.message.startswith(f"routing.way is {way}, and ") and words in choice.message


def test_why_not_the_better_way_is_said() -> None:
    message = choose(resource(**WHOLE).spec, OFF).message
    assert "the gateway does not understand routes to pools (InferencePool is not enabled)" in message
    assert "two namespaces" not in message  # which is no reason here


def test_own_envoy_needs_a_gateway_of_ours() -> None:
    spec = resource(epp=ON, routing=ON | {"way": "OwnEnvoy", "parentGateway": {"name": "theirs"}}).spec
    assert "enable gateway" in choose(spec, SPLIT).message

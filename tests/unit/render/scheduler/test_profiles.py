"""The three profiles: the same in both dialects, and our own picker takes every one of them."""

import random

import pytest

from pointsman.api.scheduler import Profile
from pointsman.core.documents import to_yaml
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.render.scheduler.profiles import configuration

FIRST = "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0"
TODAY = "docker.io/library/pointsman:local"
PROFILES: tuple[Profile, ...] = ("default", "proxy-performance", "proxy-performance-by-backend")
WEIGHTS = {
    "default": {"load-aware-scorer": 1.0, "prefix-cache-scorer": 2.0, "kv-cache-utilization-scorer": 1.0},
    "proxy-performance": {"active-request-scorer": 1.0},
    "proxy-performance-by-backend": {"active-request-scorer": 1.0},
}


@pytest.mark.parametrize("image", [FIRST, TODAY])
@pytest.mark.parametrize("profile", PROFILES)
def test_our_picker_takes_it_and_weighs_as_it_says(profile: Profile, image: str) -> None:
    document = configuration(profile, image=image)
    built = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(to_yaml(document)), name="file")
    (plan,) = built.plan.profiles
    scorers = {name: weight for name, weight in plan.plugins if name.endswith("-scorer")}
    assert (plan.name, scorers) == ("default", WEIGHTS[profile])
    assert plan.plugins[-1][0] == "max-score-picker"
    assert built.plan.handler == "single-profile-handler"


def parameters(image: str, profile: Profile = "default") -> dict[str, dict[str, object]]:
    return {one["type"]: one.get("parameters", {}) for one in configuration(profile, image=image)["plugins"]}


def test_prefixes_in_the_first_dialect_are_the_scorers() -> None:
    found = parameters(FIRST)
    assert "approx-prefix-cache-producer" not in found  # a type that such a picker stops at
    assert found["prefix-cache-scorer"] == {
        "autoTune": False,
        "blockSize": 5,
        "maxPrefixBlocksToMatch": 256,
        "lruCapacityPerServer": 31_250,
    }


@pytest.mark.parametrize("image", [TODAY, "ghcr.io/llm-d/llm-d-router:v0.10.0", "x/llm-d-inference-scheduler-2:v1"])
def test_prefixes_of_today_have_a_producer(image: str) -> None:
    found = parameters(image)
    index = found["approx-prefix-cache-producer"]
    assert found["prefix-cache-scorer"] == {}
    assert (index["maxPrefixBlocksToMatch"], index["lruCapacityPerServer"]) == (256, 31_250)
    assert index["maxPrefixTokensToMatch"] == 0  # or its default would go before the limit in blocks
    assert "hashBlockSize" not in str(found)


@pytest.mark.parametrize(("image", "kind"), [(FIRST, "by-label-selector"), (TODAY, "label-selector-filter")])
def test_backends_are_selected_by_label(image: str, kind: str) -> None:
    found = parameters(image, "proxy-performance-by-backend")
    assert found[kind] == {"matchLabels": {"llm-d.ai/kv-backend": "nvlink"}}
    assert found["active-request-scorer"] == {"requestTimeout": "2m"}


@pytest.mark.parametrize(
    "image", [FIRST, "registry:5000/llm-d-inference-scheduler", "a/llm-d-inference-scheduler@sha256:" + "0" * 64]
)
def test_the_first_project_is_known_by_its_repository(image: str) -> None:
    assert "approx-prefix-cache-producer" not in parameters(image)

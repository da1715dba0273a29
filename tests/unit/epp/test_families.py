"""What is read off plugins and settings for the metrics."""

import random

import msgspec
import pytest
from tests.unit.epp.plugins.making import endpoint

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.families import plugin_families, pool_label
from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.view import EndpointMetrics
from pointsman.epp.request.request import MediaItem, Prompt, Request
from pointsman.epp.settings import Settings

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def page(builder: Builder, text: str, *requests: Request) -> str:
    """Decide requests, each remembered before the next, and return the metrics."""
    built = builder.build(load(HEAD + text))
    views = [endpoint("a"), endpoint("b")]
    for request in requests:
        outcome = built.scheduler.decide(request, views)
        only = Picked(endpoints=views[:1], candidates=views, scores=[1.0, 0.0])
        for made in built.made.values():
            if hasattr(made.plugin, "before_send"):
                made.plugin.before_send(outcome.request, {outcome.primary: only}, outcome.primary)
    families = plugin_families(builder.meters, made=lambda: built.made)
    return "".join(line for family in families for line in family.render())


@pytest.fixture
def builder() -> Builder:
    return Builder(clock=lambda: 0.0, rng=random.Random(7))


def test_what_was_encoded_before_is_found(builder: Builder) -> None:
    items = [MediaItem(hash=1), MediaItem(hash=2, modality="video")]
    request = Request(id="r", headers={}, prompt=Prompt(tokens=1, items=items))
    text = page(builder, "plugins: [{type: mm-embeddings-cache-scorer}]", request, request)
    name = 'plugin_name="mm-embeddings-cache-producer",plugin_type="mm-embeddings-cache-producer"'
    assert f'llm_d_epp_encoder_cache_queries_total{{{name},modality="video"}} 2\n' in text
    assert f'llm_d_epp_encoder_cache_hits_total{{{name},pod="a",modality="image"}} 1\n' in text
    assert 'pod="b"' not in text
    assert f"llm_d_epp_encoder_cache_hit_ratio_count{{{name}}} 4\n" in text
    assert f"llm_d_epp_encoder_cache_hit_ratio_sum{{{name}}} 1\n" in text


def test_decisions_on_stages_have_their_plugin_and_their_old_names(builder: Builder) -> None:
    config = "plugins: [{type: disagg-profile-handler}]\nschedulingProfiles: [{name: decode}]"
    text = page(builder, config, Request(id="r", headers={}))
    name = 'plugin_name="disagg-profile-handler",plugin_type="disagg-profile-handler"'
    what = 'model_name="unknown",decision_type="decode-only"'
    assert f"llm_d_epp_disagg_decision_total{{{name},{what}}} 1\n" in text
    assert f"llm_d_inference_scheduler_disagg_decision_total{{{what}}} 1\n" in text
    assert 'extension_point="ProfilePicker"' in text
    assert 'extension_point="ProcessProfilesResults"' in text


def test_the_old_name_of_an_index_has_no_labels(builder: Builder) -> None:
    prompt = Prompt(tokens=64, block_tokens=64, blocks=[1])
    text = page(builder, "plugins: [{type: prefix-cache-scorer}]", Request(id="r", headers={}, prompt=prompt))
    assert "\ninference_extension_prefix_indexer_size 1\n" in text


@pytest.mark.parametrize(
    ("settings", "environ", "label"),
    [
        ({"pool_name": "p"}, {"POD_NAME": "x-1-2"}, "p"),
        ({"endpoint_selector": "a=b", "endpoint_target_ports": "1"}, {"POD_NAME": "my-epp-7d9f-abc12"}, "my-epp"),
        ({}, {"POD_NAME": "my-epp-7d9f-abc12"}, "file"),
    ],
)
def test_what_the_pool_is_called(settings: dict[str, str], environ: dict[str, str], label: str) -> None:
    assert pool_label(Settings(**settings), environ) == label  # type: ignore[arg-type]


def test_endpoints_that_do_not_list_the_model_are_counted(builder: Builder) -> None:
    config = """plugins: [{type: served-model-filter, parameters: {fallbackOnEmpty: true}}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: served-model-filter}]}]
"""
    built = builder.build(load(HEAD + config, allow_experimental=True))
    listed = EndpointMetrics(models=frozenset({"m"}))
    views = [msgspec.structs.replace(endpoint("a"), metrics=listed), endpoint("b"), endpoint("c")]
    views[2] = msgspec.structs.replace(views[2], metrics=EndpointMetrics(models=frozenset({"other"})))
    for model, among in (("m", views), ("m", views[1:]), ("m", views[2:]), ("m", views[1:2]), ("", views)):
        built.scheduler.decide(Request(id="r", headers={}, model=model), among)
    text = "".join(
        line for family in plugin_families(builder.meters, made=lambda: built.made) for line in family.render()
    )
    stem, name = "llm_d_epp_served_model_filter", 'plugin_name="served-model-filter"'
    outcomes = {"listed": 1, "unlisted": 2, "fallback": 1, "not_applicable": 1}
    for outcome, count in outcomes.items():
        assert f'{stem}_decisions_total{{{name},outcome="{outcome}"}} {count}\n' in text
    assert f"{stem}_candidates_total{{{name}}} 7\n" in text
    assert f"{stem}_unlisted_candidates_total{{{name}}} 3\n" in text


def test_why_requests_stay_where_their_prompt_is_cached_is_counted(builder: Builder) -> None:
    built = builder.build(load(HEAD + "plugins: [{type: prefix-cache-affinity-filter}]"))
    built.scheduler.decide(Request(id="r", headers={}, model="m"), [endpoint("a"), endpoint("b")])
    text = "".join(
        line for family in plugin_families(builder.meters, made=lambda: built.made) for line in family.render()
    )
    labels = 'plugin_name="prefix-cache-affinity-filter",outcome="no_match"'
    assert f"llm_d_epp_prefix_cache_affinity_filter_decisions_total{{{labels}}} 1\n" in text

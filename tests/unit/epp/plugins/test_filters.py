"""Filters: who stays."""

from typing import Any

import msgspec
import pytest
from tests.unit.epp.plugins.making import endpoint, make, names, request, several

from pointsman.core.values import check
from pointsman.epp.config.registry import find_type
from pointsman.epp.plugins.filters import ROLE_LABEL, SelectorParameters, fit, parse_range
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import ServiceUnavailable
from pointsman.epp.request.request import Prompt

ROLES = ["decode", "prefill", "encode", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode", "other"]


@pytest.mark.parametrize(
    ("type_name", "kept"),
    [
        pytest.param("decode-filter", {"decode", "prefill-decode", "both", "encode-prefill-decode", None}, id="decode"),
        pytest.param(
            "prefill-filter",
            {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"},
            id="prefill",
        ),
        pytest.param("encode-filter", {"encode", "encode-prefill", "encode-prefill-decode"}, id="encode"),
    ],
)
def test_roles(type_name: str, kept: set[str | None]) -> None:
    views = [*several("labels", [{ROLE_LABEL: role} for role in ROLES]), endpoint("plain")]
    found = make(type_name).filter(request(), views)
    assert {view.labels.get(ROLE_LABEL) for view in found} == kept


@pytest.mark.parametrize(
    ("selector", "kept"),
    [
        pytest.param({}, ["e0", "e1", "e2"], id="empty matches all"),
        pytest.param({"matchLabels": {"gpu": "h100"}}, ["e0"], id="equality"),
        pytest.param({"matchExpressions": [_e := {"key": "gpu", "operator": "Exists"}]}, ["e0", "e1"], id="exists"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, ["e2"], id="does not exist"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}]}, ["e1"], id="in"),
        pytest.param(
            {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a100"]}]},
            ["e0", "e2"],
            id="not in keeps the unlabelled, as Kubernetes does",
        ),
        pytest.param({"matchLabels": {"gpu": "h100"}, "matchExpressions": [_e]}, ["e0"], id="both"),
    ],
)
def test_label_selector(selector: dict[str, Any], kept: list[str]) -> None:
    views = several("labels", [{"gpu": "h100"}, {"gpu": "a100"}, {}])
    assert names(make("label-selector-filter", **selector).filter(request(), views)) == kept


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param({"key": "gpu", "operator": "In"}, id="In without values"),
        pytest.param({"key": "gpu", "operator": "Exists", "values": ["x"]}, id="Exists with values"),
        pytest.param({"key": "gpu", "operator": "Near"}, id="no such operator"),
    ],
)
def test_a_selector_that_makes_no_sense_is_refused(expression: dict[str, Any]) -> None:
    (problem,) = check(SelectorParameters, {"matchExpressions": [expression]}, path="parameters").problems
    assert problem.path.startswith("parameters.matchExpressions[0]")


def test_by_label() -> None:
    views = several("labels", [{"tier": "gold"}, {"tier": "tin"}, {}])
    strict = make("by-label", label="tier", validValues=["gold"])
    lenient = make("by-label", label="tier", validValues=["gold"], allowsNoLabel=True)
    assert names(strict.filter(request(), views)) == ["e0"]
    assert names(lenient.filter(request(), views)) == ["e0", "e2"]


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        ("active-requests", "inflight_requests"),
        ("running-requests", "running"),
        ("waiting-queue", "waiting"),
        ("kv-cache-utilization", "kv_usage"),
    ],
)
def test_utilization_drops_what_is_above_a_limit(metric: str, field: str) -> None:
    views = several(field, [0.5, 1, 2])
    drops = make("utilization-filter", conditions=[{"metric": metric, "maxValue": 1}])
    assert names(drops.filter(request(), views)) == ["e0", "e1"]
    assert drops.filter(request(), views[2:]) == []
    keeps = make("utilization-filter", conditions=[{"metric": metric, "maxValue": 1}], fallbackOnEmpty=True)
    assert names(keeps.filter(request(), views[2:])) == ["e2"]


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ("LessThan", ["e0"]),
        ("LessThanOrEqual", ["e0", "e1"]),
        ("GreaterThan", ["e2"]),
        ("GreaterThanOrEqual", ["e1", "e2"]),
        ("Equal", ["e1"]),
        ("NotEqual", ["e0", "e2"]),
    ],
)
def test_endpoint_attribute_compares(operator: str, kept: list[str]) -> None:
    algorithm = {"type": "threshold", "threshold": {"operator": operator, "value": 5}}
    views = [*several("attributes", [{"temp": 4.0}, {"temp": 5.0}, {"temp": 6.0}]), endpoint("bare")]
    passing = make("endpoint-attribute-filter", attribute="temp", algorithm=algorithm)
    failing = make("endpoint-attribute-filter", attribute="temp", algorithm=algorithm, onMissing="Fail")
    assert names(passing.filter(request(), views)) == [*kept, "bare"]
    assert names(failing.filter(request(), views)) == kept


@pytest.mark.parametrize(
    ("label", "tokens", "expected"),
    [
        pytest.param(None, 10, 0.5, id="no label"),
        pytest.param("many", 10, 0.0, id="not a range"),
        pytest.param("0-10000", 0, 0.3 + 0.7 * (0.35 + 0.3), id="in a wide range, all room left"),
        pytest.param("0-10000", 10_000, 0.3 + 0.7 * 0.35, id="in a wide range, no room left"),
        pytest.param("5-5", 5, 1.0, id="a range of one"),
        pytest.param("2000-3000", 1000, 0.15, id="below"),
        pytest.param("2000-3000", 6000, 0.075, id="above"),
    ],
)
def test_context_length_fit(label: str | None, tokens: int, expected: float) -> None:
    assert fit(label, tokens) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "a-b", "9-3", "-4"])
def test_what_is_not_a_range(text: str) -> None:
    assert parse_range(text) is None


def test_context_length_filters_only_when_told_to() -> None:
    label = "llm-d.ai/context-length-range"
    views = several("labels", [{label: "0-100"}, {label: "101-1000"}, {}, {label: "oops"}])
    seen = request(prompt=Prompt(tokens=500))
    assert make("context-length-aware").filter(seen, views) is views
    assert names(make("context-length-aware", enableFiltering=True).filter(seen, views)) == ["e1", "e2"]


def test_the_conformance_filter_keeps_what_the_header_names_in_its_order() -> None:
    views = [endpoint(f"10.0.0.{n}", port=p) for n in (1, 2, 3) for p in (1, 2)]
    named = make("header-based-testing-filter")
    seen = request(headers={"test-epp-endpoint-selection": "10.0.0.3:2, 10.0.0.1"})
    assert [view.target for view in named.filter(seen, views)] == ["10.0.0.3:2", "10.0.0.1:1", "10.0.0.1:2"]
    assert named.filter(request(), views) == []


def serving(name: str, *models: str, adapters: tuple[str, ...] = ()) -> EndpointView:
    view = endpoint(name)
    listed = frozenset((*models, *adapters)) if models or adapters else None
    metrics = msgspec.structs.replace(view.metrics, models=listed, adapters=dict.fromkeys(adapters, "base"))
    return msgspec.structs.replace(view, metrics=metrics)


def test_only_who_serves_the_model_is_left() -> None:
    views = [serving("a", "base"), serving("b", "other"), serving("c")]
    asked = request(target_model="base")
    assert names(make("served-model-filter").filter(asked, views)) == ["a", "c"], "who gave no list may have it"
    assert names(make("served-model-filter", onMissing="Fail").filter(asked, views)) == ["a"]
    lora = [serving("a", "base", adapters=("lora",)), serving("b", "base"), serving("c")]
    assert names(make("served-model-filter").filter(request(target_model="lora"), lora)) == ["a"], (
        "an adapter is listed"
    )
    assert names(make("served-model-filter").filter(asked, [serving("c")])) == ["c"]


def test_without_any_list_strictness_decides_and_what_is_counted_are_those_without_one() -> None:
    asked, views = request(target_model="base"), [serving("c"), serving("d")]
    lenient, strict = make("served-model-filter"), make("served-model-filter", onMissing="Fail")
    assert names(lenient.filter(asked, views)) == ["c", "d"]
    with pytest.raises(ServiceUnavailable):
        strict.filter(asked, views)
    assert (lenient.outcomes, strict.outcomes) == ({"unlisted": 1}, {"empty": 1})
    counting = make("served-model-filter")
    counting.filter(asked, [serving("a", "base"), serving("b", "other"), serving("c")])
    counting.filter(request(), [serving("a", "base")])
    assert (counting.candidates, counting.unlisted) == (3, 1)
    assert counting.outcomes == {"listed": 1, "not_applicable": 1}


def test_a_model_that_nobody_serves_is_503() -> None:
    views, asked = [serving("b", "other")], request(target_model="base")
    with pytest.raises(ServiceUnavailable, match="no endpoint serves the model 'base'"):
        make("served-model-filter").filter(asked, views)
    assert names(make("served-model-filter", fallbackOnEmpty=True).filter(asked, views)) == ["b"]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("endpoint-attribute-filter", {"attribute": "power/core-metrics-extractor"}),
        ("endpoint-attribute-scorer", {"attributeKey": "power/core-metrics-extractor"}),
    ],
)
def test_an_attribute_is_named_without_its_producer(kind: str, parameters: dict[str, object]) -> None:
    found = check(find_type(kind).parameters, parameters, path="p")  # type: ignore[arg-type]
    assert any("write the bare name, and producer as a parameter of its own" in str(each) for each in found.problems)

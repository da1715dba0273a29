"""The loader beside the Go picker's: what passes with a warning, what is refused, and files of older versions."""

import random
import textwrap

import pytest
from tests.unit.epp.config.loading import HEAD, build, problems

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.config.document import read_config


def warned(body: str, *, head: str = HEAD) -> list[str]:
    return list(load(head + textwrap.dedent(body), allow_experimental=True).warnings)


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        pytest.param(
            "plugins: [{type: queue-scorer, parameters: {x: 1}}]",
            "plugins[0].parameters: queue-scorer takes no parameters: remove x",
            id="parameters of a plugin without any",
        ),
        *(
            pytest.param(
                f"plugins: [{{type: {name}}}]\nschedulingProfiles: [{{name: p, plugins: [{{pluginRef: {name}}}]}}]",
                f"schedulingProfiles[0].plugins[0].pluginRef: {name!r} is {kind}, which works for every request: "
                "remove it from the profile",
                id=name,
            )
            for name, kind in (
                ("openai-parser", "a parser"),
                ("token-producer", "a producer"),
                ("probabilistic-admitter", "an admitter"),
            )
        ),
        pytest.param(
            "plugins: [{type: load-aware-scorer, parameters: {threshold: 0}}]",
            "plugins[0].parameters.threshold: 0 is not above 0, so the default is used: remove it",
            id="zero for the default",
        ),
        pytest.param(
            "plugins: [{type: load-aware-scorer, parameters: {Threshold: 5}}]",
            "plugins[0].parameters.Threshold: upper and lower case are wrong: write threshold",
            id="another case",
        ),
        pytest.param(
            "plugins: [{type: queue-scorer}]\n---\nplugins: []",
            "several documents in one file: only the first is read: remove the others",
            id="several documents",
        ),
    ],
)
def test_what_the_go_picker_lets_pass_is_taken_with_a_warning(body: str, warning: str) -> None:
    assert warned(body) == [warning]


@pytest.mark.parametrize(
    ("handler", "warning"),
    [
        pytest.param(
            "{type: disagg-profile-handler}",
            ["'decode', so it refuses requests: did you mean 'decoder'?"],
            id="a stage",
        ),
        pytest.param("{type: disagg-profile-handler, parameters: {profiles: {decode: decoder}}}", [], id="declared"),
        pytest.param(
            "{type: header-profile-handler, parameters: {defaultProfile: decodr}}",
            ["'decodr', so it refuses requests: did you mean 'decoder'?"],
            id="a default",
        ),
        pytest.param("{type: header-profile-handler}", [], id="a header that everybody sends"),
    ],
)
def test_a_profile_that_a_handler_would_run_and_nobody_declared_is_a_warning(handler: str, warning: list[str]) -> None:
    made = build(
        f"plugins: [{handler}]\nschedulingProfiles: [{{name: decoder}}, {{name: prefill}}]", allow_experimental=True
    )
    assert list(made.plan.warnings) == [f"plugins[0]: no profile is named {each}" for each in warning]


def test_nested_names_of_another_case_are_understood() -> None:
    plugin = "{type: disagg-profile-handler, parameters: {Profiles: {DECODE: d}}}"
    made = load(f"{HEAD}plugins: [{plugin}]\nschedulingProfiles: [{{name: d}}]")
    assert made.get("disagg-profile-handler").parameters.profiles.decode == "d"  # type: ignore[union-attr]


def test_a_head_may_be_missing() -> None:
    body = "plugins: [{type: queue-scorer}]"
    assert warned(body, head="kind: EndpointPickerConfig\n") == ["apiVersion: is missing: write llm-d.ai/v1"]
    assert warned(body, head="apiVersion: llm-d.ai/v1\n") == ["kind: is missing: write EndpointPickerConfig"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("{type: load-aware-scorer, parameters: {threshold: '2'}}", "must be a number, not '2'", id="text"),
        pytest.param(
            "{type: load-aware-scorer, parameters: {threshold: true}}", "must be a number, not True", id="truth"
        ),
        pytest.param(
            "{type: context-length-aware, parameters: {enableFiltering: 'yes'}}", "must be true or false", id="yes"
        ),
        pytest.param("{type: by-label, parameters: {label: ''}}", "should have at least 1 character", id="no label"),
        pytest.param("{type: by-label, parameters: {label: a}}", "it would drop every endpoint", id="no values"),
        pytest.param(
            "{type: file-discovery, parameters: {path: ''}}", "should have at least 1 character", id="no path"
        ),
        pytest.param("{type: file-discovery}", "is missing", id="no path at all"),
        pytest.param(
            "{type: core-metrics-extractor, parameters: {engineConfigs: [{name: a}, {name: a}]}}",
            "the engine 'a' is there twice: remove one",
            id="an engine twice",
        ),
    ],
)
def test_what_the_go_picker_refuses_is_refused(body: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(f"plugins: [{body}]"))


def test_an_extractor_twice_is_refused() -> None:
    source = "{pluginRef: metrics-data-source, extractors: [{pluginRef: e}, {pluginRef: e}]}"
    plugins = "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor, name: e}]"
    (found,) = problems(f"{plugins}\ndataLayer: {{sources: [{source}]}}")
    assert found == "dataLayer.sources[0].extractors[1].pluginRef: 'e' is there twice: remove one"


ALPHA = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{name: my-disc, type: file-discovery, parameters: {path: e.yaml}}]
dataLayer:
  injectDefaults: true
  discovery: {pluginRef: my-disc}
  peerDiscovery: {pluginRef: peers}
  crossReplicaSyncerPluginRef: syncer
  crossReplicaSyncInterval: 500ms
  crossReplicaPublishTimeout: 2s
flowControl:
  maxRequests: "1k"
  priorityBands: [{priority: 1, defaultRequestTTL: 30s}]
  defaultRequestTTL: 30s
requestHandler: {propagatePriority: true}
"""
V1 = """
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{name: my-disc, type: file-discovery, parameters: {path: e.yaml}}]
dataLayer:
  injectDefaults: true
  discovery: {endpoints: {pluginRef: my-disc}, peers: {pluginRef: peers}}
  crossReplica: {syncerPluginRef: syncer, syncInterval: 500ms, publishTimeout: 2s}
flowControl:
  maxRequests: "1k"
  priorityBands: [{priority: 1, defaultRequestTTL: 30s}]
  defaultRequestTTL: 30s
requestHandler: {propagatePriority: true}
"""


def test_a_file_of_the_version_before_means_the_same_and_loses_no_field() -> None:
    old, new = read_config(ALPHA, name="old"), read_config(V1, name="new")
    assert old.document == new.document
    assert (old.problems, new.problems) == ((), ())
    assert (len(old.warnings), len(new.warnings)) == (1, 0)
    layer = new.document.data_layer
    assert layer.discovery.endpoints is not None and layer.discovery.endpoints.plugin_ref == "my-disc"
    assert (layer.cross_replica.sync_interval, layer.cross_replica.publish_timeout) == (0.5, 2.0)
    assert new.document.request_handler.propagate_priority


def test_where_old_and_new_are_both_there_the_new_one_counts() -> None:
    both = ALPHA.replace(
        "discovery: {pluginRef: my-disc}", "discovery: {pluginRef: x, endpoints: {pluginRef: my-disc}}"
    )
    assert read_config(both, name="both").document == read_config(V1, name="new").document


def test_the_new_version_has_no_old_fields_and_an_old_file_is_told_its_own_names() -> None:
    body = "dataLayer: {discovery: {pluginRef: nobody}}"
    assert problems(body)[0].startswith("dataLayer.discovery.pluginRef: unknown field")
    alpha = HEAD.replace("/v1", "/v1alpha1")
    assert problems(body, head=alpha)[0].startswith("dataLayer.discovery.pluginRef: no plugin is named 'nobody'")


def test_the_effective_configuration_is_of_the_newest_version() -> None:
    text = ALPHA.replace("  peerDiscovery: {pluginRef: peers}\n  crossReplicaSyncerPluginRef: syncer\n", "")
    shown = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(text)).to_yaml()
    assert shown.startswith("apiVersion: llm-d.ai/v1\n")
    assert parse_yaml(shown, name="shown")["dataLayer"]["discovery"] == {"endpoints": {"pluginRef": "my-disc"}}
    assert load(shown).warnings == ()
    flow = parse_yaml(shown, name="shown")["flowControl"]
    assert (flow["maxRequests"], flow["defaultRequestTTL"]) == ("1k", "30s"), "what waits for the gate is not lost"
    assert load(shown).document.flow_control.priority_bands == load(text).document.flow_control.priority_bands
    assert load(shown).document.request_handler.propagate_priority


def test_every_field_of_flow_control_is_known() -> None:
    policies = "fairnessPolicyRef: f, orderingPolicyRef: o"
    band = f"{{priority: 10, maxBytes: 1Ki, maxRequests: 64, defaultRequestTTL: 5s, {policies}}}"
    text = f"""
        flowControl:
          maxBytes: 2048
          maxRequests: 128
          defaultRequestTTL: 30s
          noEndpointRequestTTL: 90s
          defaultPriorityBand: {band}
          defaultNegativePriorityBand: {band}
          priorityBands: [{band}]
          usageLimitPolicyPluginRef: u
          enableEviction: true
        """
    assert problems(text) == []


def test_an_old_parser_moves_and_takes_nothing_with_it() -> None:
    text = HEAD + "parser: {pluginRef: openai-parser}\nrequestHandler: {propagatePriority: true}"
    handler = read_config(text, name="c").document.request_handler
    assert handler.propagate_priority and [each.plugin_ref for each in handler.parsers] == ["openai-parser"]


def test_who_can_do_without_a_producer_is_warned_when_it_is_not_there() -> None:
    scorer = "{type: endpoint-attribute-weight-scorer, parameters: {attributeKey: g, producer: gone, weights: {a: 1}}}"
    built = build(f"plugins: [{scorer}]", allow_experimental=True)
    assert built.plan.warnings == (
        "plugins[0]: no plugin is named 'gone', so it works without: add it, or mend the name",
    )


def test_a_context_length_label_must_have_a_name() -> None:
    (found,) = problems("plugins: [{type: context-length-aware, parameters: {label: ''}}]")
    assert found.startswith("plugins[0].parameters.label:")


@pytest.mark.parametrize(("value", "kept"), [("1", True), ("T", True), (" true ", True), ("0", False), ("F", False)])
def test_gates_are_true_or_false_in_every_way_that_go_knows(value: str, kept: bool) -> None:
    read = read_config(f"{HEAD}featureGates: ['haPopulateNonLeaderDatastore={value}']", name="c")
    assert read.gates["haPopulateNonLeaderDatastore"] is kept and not read.problems


@pytest.mark.parametrize("value", ["10Ei", "1P", "1e3", "500m", ".5Gi", "+5", 1000])
def test_limits_are_quantities_of_kubernetes(value: str | int) -> None:
    assert problems(f"flowControl: {{maxBytes: {value}}}") == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(
            "featureGates: ['haPopulateNonLeaderDatastore=']",
            "featureGates[0]: '' is not true or false",
            id="a gate that is nothing",
        ),
        pytest.param(
            "flowControl: {maxBytes: 10X}",
            "flowControl.maxBytes: '10X' is not a quantity: write a number with a unit, such as 10Gi, 5k or 1000",
            id="no quantity",
        ),
        pytest.param(
            "plugins: [{type: queue-scorer}, {type: disagg-profile-handler, "
            "parameters: {deciders: {prefill: queue-scorer}}}]",
            "plugins[1]: refers to 'queue-scorer', which is no decider: name one, as always-disagg-pd-decider",
            id="a decider that is none",
        ),
        pytest.param(
            "plugins: [{type: disagg-profile-handler, parameters: {decodeProfile: d, profiles: {prefill: p}}}]",
            "plugins[0].parameters: decodeProfile is the old name of profiles.decode: write all of them the new way",
            id="old and new names of stages",
        ),
    ],
)
def test_what_the_go_picker_refuses_is_refused_in_whole_files(body: str, found: str) -> None:
    assert problems(body) == [found]


def test_old_names_of_stages_may_be_in_another_case() -> None:
    handler = "{type: disagg-profile-handler, parameters: {DecodeProfile: default}}"
    (plugin,) = (each for each in build(f"plugins: [{handler}]").plan.plugins if each.name == "disagg-profile-handler")
    assert plugin.parameters.profiles.decode == "default"


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(
        UserError, match="c:4:1: not valid YAML: 'plugins' stands twice in one mapping: keep one of them"
    ):
        read_config(f"{HEAD}plugins: []\nplugins: []", name="c")
    merged = read_config(f"{HEAD}plugins: [&a {{type: queue-scorer}}, {{<<: *a, name: b}}]", name="c")
    assert [each.name for each in merged.document.plugins] == ["", "b"]


def test_an_old_file_is_told_its_own_names_also_where_nothing_is_left_of_it() -> None:
    alpha = HEAD.replace("/v1", "/v1alpha1")
    (found,) = problems("dataLayer: {peerDiscovery: {pluginRef: ''}}", head=alpha)
    assert found.startswith("dataLayer.peerDiscovery.pluginRef:")

"""The loader: what it accepts, what it adds, and what it says about mistakes."""

import random
from pathlib import Path

import pytest
from tests.unit.epp.config.loading import HEAD, build, plan, problems, profile

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load

# -- defaults and what is added ---------------------------------------------------------------------------------


def test_the_default_configuration_is_llm_ds() -> None:
    default = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(""))
    assert profile(default)[:3] == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
    ]
    assert default.plan.handler == "single-profile-handler"
    assert default.plan.detector == "utilization-detector"
    assert default.plan.sources == (("metrics-data-source", ("core-metrics-extractor",)),)
    assert default.plan.parsers == ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
    assert "approx-prefix-cache-producer" in default.made, "the scorer consumes what it produces"


def test_without_profiles_there_is_one_with_everything_in_the_files_order() -> None:
    assert profile(plan("plugins: [{type: kv-cache-utilization-scorer}, {type: decode-filter}]")) == [
        ("kv-cache-utilization-scorer", 1.0),
        ("decode-filter", 1.0),
        ("max-score-picker", 1.0),
    ]


def test_a_scorer_without_a_weight_weighs_1() -> None:
    body = """
    plugins: [{type: queue-scorer}, {type: random-picker}]
    schedulingProfiles: [{name: p, plugins: [{pluginRef: random-picker}, {pluginRef: queue-scorer}]}]
    """
    assert profile(plan(body), "p") == [("random-picker", 1.0), ("queue-scorer", 1.0)]


def test_a_profile_without_a_picker_takes_one_that_is_defined() -> None:
    body = """
    plugins: [{type: queue-scorer}, {name: mine, type: random-picker}]
    schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}]}]
    """
    assert profile(plan(body), "p") == [("queue-scorer", 1.0), ("mine", 1.0)]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        pytest.param("", ["metrics-data-source"], id="nothing said"),
        pytest.param("dataLayer: {}", ["metrics-data-source"], id="empty"),
        pytest.param("dataLayer: {injectDefaults: false}", [], id="opted out"),
        pytest.param(
            "dataLayer: {sources: [{pluginRef: models-data-source, extractors: [{pluginRef: models-data-extractor}]}]}",
            ["models-data-source", "metrics-data-source"],
            id="added to another",
        ),
        pytest.param("dataLayer: {sources: [{pluginRef: m}]}", ["m"], id="not added twice"),
    ],
)
def test_the_metrics_source_is_added(layer: str, expected: list[str]) -> None:
    plugins = (
        "plugins: [{type: models-data-source}, {type: models-data-extractor}, {name: m, type: metrics-data-source}]"
    )
    assert [name for name, _ in plan(f"{plugins}\n{layer}").sources] == expected


def test_producers_are_made_from_what_is_consumed() -> None:
    built = build("plugins: [{type: token-load-scorer}]")
    assert "inflight-load-producer" in built.made
    mine = build(
        """
        plugins:
        - {name: px, type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 128, autoTune: false}}
        - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: px}}
        """
    )
    assert "approx-prefix-cache-producer" not in mine.made
    assert mine.scheduler.needs([]).block_tokens == 128


def test_a_passthrough_configuration_needs_nothing_of_a_body() -> None:
    built = build(
        """
        plugins: [{type: passthrough-parser}, {type: active-request-scorer}]
        requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
        """
    )
    needs = built.scheduler.needs([])
    assert not needs.body and not needs.prompt and needs.parsers == ("passthrough-parser",)
    assert build("plugins: [{type: queue-scorer}]").scheduler.needs([]).body


def test_the_effective_configuration_reads_back_to_itself() -> None:
    first = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(""))
    second = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(first.to_yaml()))
    assert parse_yaml(first.to_yaml(), name="1") == parse_yaml(second.to_yaml(), name="2")


# -- old and new spellings --------------------------------------------------------------------------------------


def test_both_api_versions_are_read() -> None:
    for version in ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"):
        old = load(HEAD.replace("llm-d.ai/v1", version) + "plugins: [{type: queue-scorer}]")
        assert old.warnings == (f"apiVersion: {version} is deprecated: write llm-d.ai/v1",)
    assert plan("plugins: [{type: queue-scorer}]").warnings == ()


def test_deprecated_fields_move_to_where_they_belong_now() -> None:
    moved = plan(
        """
        plugins: [{name: sat, type: concurrency-detector}, {type: passthrough-parser}]
        saturationDetector: {pluginRef: sat}
        parser: {pluginRef: passthrough-parser}
        """
    )
    assert moved.detector == "sat"
    assert moved.parsers == ("passthrough-parser",)
    assert [warning.split(":")[0] for warning in moved.warnings] == ["parser", "saturationDetector"]


def test_deprecated_types_work_with_a_warning() -> None:
    old = plan("plugins: [{type: by-label, parameters: {label: a, allowsNoLabel: true}}, {type: tokenizer}]")
    assert old.warnings == (
        "plugins[0].type: by-label is deprecated: use label-selector-filter",
        "plugins[1].type: tokenizer is deprecated: use token-producer",
    )


def test_gates_are_read() -> None:
    assert plan("featureGates: [haPopulateNonLeaderDatastore=false]").gates["haPopulateNonLeaderDatastore"] is False
    assert plan("featureGates: [flowControl=false, dataLayer]").gates["flowControl"] is False


def test_a_flow_control_section_without_its_gate_is_only_checked() -> None:
    body = """
    flowControl:
      maxBytes: 10Gi
      maxRequests: "20k"
      defaultRequestTTL: 60s
      priorityBands: [{priority: 100, maxRequests: 5}]
    """
    assert plan(body).detector == "utilization-detector"


# -- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("plugins: [testing]", "plugins[0]: ", id="not a mapping"),
        pytest.param("plugins: [{parameters: {a: 1}}]", "plugins[0].type: is missing", id="no type"),
        pytest.param(
            "plugins: [{type: queue-scorrer}]",
            "plugins[0].type: 'queue-scorrer' is not a plugin type: did you mean 'queue-scorer'?",
            id="unknown type",
        ),
        pytest.param(
            "plugins: [{type: load-aware-scorer, parameters: {treshold: 1}}]",
            "plugins[0].parameters.treshold: unknown field: did you mean 'threshold'?",
            id="unknown parameter",
        ),
        pytest.param(
            "plugins: [{type: load-aware-scorer, parameters: {threshold: asdf}}]",
            "plugins[0].parameters.threshold: must be a number, not 'asdf'",
            id="wrong type of parameter",
        ),
        pytest.param("pluginz: []", "pluginz: unknown field: did you mean 'plugins'?", id="unknown section"),
        pytest.param("featureGates: [x]", "featureGates[0]: unknown gate 'x'", id="unknown gate"),
        pytest.param("featureGates: [flowControl=maybe]", "featureGates[0]: 'maybe' is not", id="gate's value"),
        pytest.param(
            "featureGates: [flowControl]", "featureGates: flowControl is not implemented yet", id="flow control"
        ),
        pytest.param(
            "plugins: [{name: a, type: queue-scorer}, {name: a, type: decode-filter}]",
            "plugins[1].name: 'a' is the name of plugins[0] already",
            id="duplicate name",
        ),
        pytest.param(
            "schedulingProfiles: [{plugins: []}]", "schedulingProfiles[0].name: is missing", id="profile without a name"
        ),
        pytest.param(
            "schedulingProfiles: [{name: p, plugins: [{weight: 10}]}]",
            "schedulingProfiles[0].plugins[0].pluginRef: is missing",
            id="reference to nothing",
        ),
        pytest.param(
            "schedulingProfiles: [{name: p, plugins: [{pluginRef: nobody}]}]",
            "schedulingProfiles[0].plugins[0].pluginRef: no plugin is named 'nobody'",
            id="undefined reference",
        ),
        pytest.param(
            "{plugins: [{type: header-based-testing-filter}], "
            "schedulingProfiles: [{name: p, plugins: []}, {name: p, plugins: []}]}",
            "schedulingProfiles[1].name: 'p' is the name of another profile",
            id="duplicate profile",
        ),
        pytest.param(
            "{plugins: [{type: max-score-picker}, {type: random-picker}], schedulingProfiles: "
            "[{name: p, plugins: [{pluginRef: max-score-picker}, {pluginRef: random-picker}]}]}",
            "schedulingProfiles[0].plugins: two pickers, max-score-picker and random-picker: keep one",
            id="two pickers",
        ),
        pytest.param(
            "plugins: [{name: a, type: single-profile-handler}, {name: b, type: single-profile-handler}]",
            "plugins: two profile handlers, a and b: keep one",
            id="two handlers",
        ),
        pytest.param(
            "schedulingProfiles: [{name: a, plugins: []}, {name: b, plugins: []}]",
            "plugins: 2 profiles and no profile handler",
            id="no handler for two profiles",
        ),
        pytest.param(
            "{plugins: [{type: single-profile-handler}], "
            "schedulingProfiles: [{name: a, plugins: []}, {name: b, plugins: []}]}",
            "schedulingProfiles: 2 profiles, but single-profile-handler runs only one",
            id="single handler for two profiles",
        ),
        pytest.param(
            "{plugins: [{type: queue-scorer}], dataLayer: {sources: [{pluginRef: queue-scorer}]}}",
            "dataLayer.sources[0].pluginRef: 'queue-scorer' is a scorer, not a data source",
            id="not a source",
        ),
        pytest.param(
            "{plugins: [{type: metrics-data-source}, {type: queue-scorer}], dataLayer: {sources: "
            "[{pluginRef: metrics-data-source, extractors: [{pluginRef: queue-scorer}]}]}}",
            "dataLayer.sources[0].extractors[0].pluginRef: 'queue-scorer' is a scorer, not an extractor",
            id="not an extractor",
        ),
        pytest.param(
            "{plugins: [{type: queue-scorer}], requestHandler: {parsers: [{pluginRef: queue-scorer}]}}",
            "requestHandler.parsers[0].pluginRef: 'queue-scorer' is a scorer, not a parser",
            id="not a parser",
        ),
        pytest.param(
            "flowControl: {saturationDetector: {pluginRef: nobody}}",
            "flowControl.saturationDetector.pluginRef: no plugin is named 'nobody'",
            id="no detector",
        ),
        pytest.param(
            "dataLayer: {discovery: {peers: {pluginRef: x}}}",
            "dataLayer.discovery.peers.pluginRef: shared state of replicas is not implemented yet",
            id="replicas",
        ),
        pytest.param(
            "plugins: [{type: precise-prefix-cache-scorer}]",
            "plugins[0].type: 'precise-prefix-cache-scorer' belongs to the precise prefix cache, which",
            id="a type that comes later",
        ),
        pytest.param(
            "plugins: [{type: utilization-filter}]",
            "plugins[0].type: utilization-filter is experimental: allow it with --allow-experimental-plugins",
            id="experimental",
        ),
        pytest.param(
            "plugins: [{type: prefix-cache-scorer, "
            "parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}]",
            "plugins[0]: needs 'precise-prefix-cache-producer', which this version does not implement yet",
            id="a producer that comes later",
        ),
        pytest.param(
            "plugins: [{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: queue-scorer}}, "
            "{type: queue-scorer}]",
            "plugins[0]: needs PrefixCacheMatchInfo from 'queue-scorer', which does not produce it",
            id="not a producer",
        ),
        pytest.param(
            "{plugins: [{type: disagg-profile-handler, parameters: {deciders: {prefill: who}}}], "
            "schedulingProfiles: [{name: decode, plugins: []}]}",
            "plugins[0]: refers to 'who', which is no plugin",
            id="no such decider",
        ),
        pytest.param(
            "plugins: [{name: max-score-picker, type: queue-scorer}]",
            "plugins[0].name: 'max-score-picker' is what a plugin that is added here is called: rename this",
            id="a name that is needed",
        ),
    ],
)
def test_mistakes_are_named(body: str, expected: str) -> None:
    found = problems(body)
    assert any(problem.startswith(expected) for problem in found), found


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            "apiVersion: llm-d.ai/v2\nkind: EndpointPickerConfig\n",
            "apiVersion: 'llm-d.ai/v2' is not known: write llm-d.ai/v1",
        ),
        ("apiVersion: llm-d.ai/v1\nkind: Pod\n", "kind: 'Pod' is not what the picker reads"),
    ],
)
def test_the_head_of_the_file_is_checked(head: str, expected: str) -> None:
    assert problems("plugins: []", head=head)[0].startswith(expected)


def test_all_mistakes_are_reported_at_once() -> None:
    found = problems(
        """
        featureGates: [nope]
        pluginz: []
        plugins:
        - {type: queue-scorer, parameters: {x: 1}, nam: a}
        - {type: load-aware-scorer, parameters: {threshold: many}}
        - {type: no.such.module:Thing}
        schedulingProfiles: [{name: p, plugins: [{pluginRef: quue-scorer}, {pluginRef: x, weight: heavy}]}]
        dataLayer: {injectDefaults: perhaps}
        requestHandler: {parsers: [{pluginRef: openai-parsr}]}
        """
    )
    assert [problem.split(": ")[0] for problem in found] == [
        "plugins[0].nam",
        "schedulingProfiles[0].plugins[1].weight",
        "dataLayer.injectDefaults",
        "pluginz",
        "featureGates[0]",
        "plugins[1].parameters.threshold",
        "plugins[2].type",
        "schedulingProfiles[0].plugins[0].pluginRef",
        "schedulingProfiles[0].plugins[1].pluginRef",
        "requestHandler.parsers[0].pluginRef",
    ]
    assert found[-1].endswith("did you mean 'openai-parser'?")


def test_what_is_not_yaml_is_one_sentence_with_a_position() -> None:
    with pytest.raises(UserError, match=r"^c.yaml:\d+:\d+: not valid YAML"):
        load("a: [", name="c.yaml")
    with pytest.raises(UserError, match="expected a mapping with kind: EndpointPickerConfig"):
        load("- a", name="c.yaml")


def test_experimental_plugins_work_when_allowed() -> None:
    body = "plugins: [{type: session-affinity-scorer}]"
    assert ("session-affinity-scorer", 1.0) in profile(build(body, allow_experimental=True))


def test_a_weight_of_a_filter_is_a_warning() -> None:
    body = """
    plugins: [{type: decode-filter}]
    schedulingProfiles: [{name: p, plugins: [{pluginRef: decode-filter, weight: 3}]}]
    """
    assert "its weight means nothing" in plan(body).warnings[0]


# -- files that llm-d ships, by what is in them -----------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            plugins:
            - type: approx-prefix-cache-producer
              parameters: {maxPrefixTokensToMatch: 4096, lruCapacityPerServer: 31250}
            - type: prefix-cache-scorer
            - type: queue-scorer
            - type: prefill-filter
            - type: decode-filter
            - type: max-score-picker
            - {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
            - {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}
            schedulingProfiles:
            - name: prefill
              plugins: [{pluginRef: prefill-filter}, {pluginRef: max-score-picker}, {pluginRef: queue-scorer}]
            - name: decode
              plugins: [{pluginRef: decode-filter}, {pluginRef: max-score-picker}, {pluginRef: prefix-cache-scorer}]
            """,
            id="prefill and decode",
        ),
        pytest.param(
            """
            plugins:
            - type: prefill-header-handler
            - type: prefill-filter
            - type: decode-filter
            - type: max-score-picker
            - type: prefix-cache-scorer
            - type: queue-scorer
            - {type: pd-profile-handler, parameters: {threshold: 0}}
            schedulingProfiles:
            - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer, weight: 1.0}]}
            - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer, weight: 1.0}]}
            """,
            id="prefill and decode as KServe writes it",
        ),
        pytest.param(
            """
            plugins: [{type: encode-filter}, {type: max-score-picker}, {type: single-profile-handler}]
            schedulingProfiles:
            - {name: default, plugins: [{pluginRef: encode-filter}, {pluginRef: max-score-picker}]}
            """,
            id="encode only",
        ),
        pytest.param(
            """
            plugins:
            - {name: fd, type: file-discovery, parameters: {path: /etc/epp/endpoints.yaml, watchFile: true}}
            - {name: sat, type: concurrency-detector, parameters: {maxConcurrency: 64}}
            - type: data-parallel-profile-handler
            dataLayer: {discovery: {endpoints: {pluginRef: fd}}}
            flowControl: {saturationDetector: {pluginRef: sat}}
            """,
            id="file discovery, concurrency, data parallel",
        ),
        pytest.param(
            """
            plugins:
            - {type: no-hit-lru-scorer, parameters: {lruSize: 2048}}
            - {type: probabilistic-admitter}
            - {type: context-length-aware, parameters: {enableFiltering: true}}
            - {type: prefix-cache-affinity-filter, parameters: {maxTTFTPenaltyMs: 100}}
            """,
            id="no-hit LRU, admitter, context length",
        ),
    ],
)
def test_configurations_of_the_kinds_that_llm_d_ships_build(body: str) -> None:
    assert build(body).to_yaml()


@pytest.mark.parametrize("name", ["models-responder", "served-model-filter"])
def test_who_wants_models_has_endpoints_asked_for_them(name: str) -> None:
    made = load(f"{HEAD}plugins: [{{type: {name}}}]", allow_experimental=True)
    assert ("models-data-source", ("models-data-extractor",)) in made.sources


def test_the_sample_of_the_baseline_loads_without_a_warning() -> None:
    sample = Path(__file__).parents[4] / "config" / "picker" / "optimized-baseline.yaml"
    made = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(sample.read_text()))
    assert made.plan.warnings == ()
    assert {"approx-prefix-cache-producer", "inflight-load-producer"} <= set(made.made)

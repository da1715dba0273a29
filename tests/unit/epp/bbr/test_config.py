"""What the router is told to do, in files of both kinds and by flags; and what ConfigMaps say of adapters."""

import random
from typing import Any

import pytest

from pointsman.core.errors import UserError
from pointsman.epp.bbr.adapters import MANAGED, Adapters
from pointsman.epp.bbr.config import from_flags, from_text
from pointsman.epp.bbr.kinds import Surroundings
from pointsman.epp.bbr.processors import Draft, Tally
from pointsman.epp.bbr.program import Program
from pointsman.epp.bbr.settings import BbrSettings

BBR = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: BodyBasedRoutingConfig
plugins:
- {type: body-field-to-header, name: m, parameters: {field_name: model, header_name: X-Model}}
- {type: base-model-to-header}
request: [{pluginRef: m}, {pluginRef: base-model-to-header}]
"""
SELECTING = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: model-selector, name: selector}
- {type: model-group-name-filter, name: group}
- {type: inflight-requests-scorer, name: inflight}
- {type: cost-scorer, parameters: {unused: 1}}
- {type: weighted-random-picker, name: any}
- {type: request-metadata-extractor, name: counter}
- {type: model-config-datasource, name: source, parameters: {modelsPath: m.json}}
- {type: single-profile-picker, name: single}
profilePicker: {pluginRef: single}
profiles:
- name: default
  plugins:
    request:
    - {pluginRef: selector}
    - {pluginRef: group}
    - {pluginRef: inflight, weight: 2}
    - {pluginRef: cost-scorer, weight: 1}
    - {pluginRef: any}
datalayer: {extractors: [{pluginRef: counter}], datasources: [{pluginRef: source}]}
"""
LABEL = MANAGED[0]
IPP = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: body-field-to-header, name: m, parameters: {fieldName: model, headerName: X-Model}}
- {type: base-model-to-header}
profiles:
- name: default
  plugins: {request: [{pluginRef: m}, {pluginRef: base-model-to-header}]}
"""


def around(base: str = "") -> Surroundings:
    return Surroundings(base_of=lambda _: base, tally=Tally(), rng=random.Random(1), clock=lambda: 0.0)


def headers(program: Program, **members: str) -> list[tuple[str, str]]:
    draft = Draft(dict(members))
    for each in program.processors:
        each.process(draft)
    return draft.headers


@pytest.mark.parametrize("text", [BBR, IPP])
def test_both_kinds_of_files(text: str) -> None:
    made = from_text(text, name="f", around=around("base"))
    assert headers(made, model="m") == [("X-Model", "m"), ("X-Gateway-Base-Model-Name", "base")]


@pytest.mark.parametrize(("text", "kind"), [(BBR, "BodyBasedRoutingConfig"), (IPP, "PayloadProcessorConfig")])
def test_a_file_that_does_not_say_what_it_is_is_what_it_must_be(text: str, kind: str) -> None:
    bare = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("kind", "apiVersion")))
    made = from_text(bare, name="f", around=around("base"))
    assert headers(made, model="m") == [("X-Model", "m"), ("X-Gateway-Base-Model-Name", "base")]
    assert made.warnings[0] == f"kind: is missing: write {kind}"
    assert made.warnings[1].startswith("apiVersion: is missing: write ")
    with pytest.raises(UserError, match="kind: '' is not what the router reads"):
        from_text("{}", name="f", around=around())


def test_a_profile_that_chooses_between_models() -> None:
    program = from_text(SELECTING, name="f", around=around())
    assert str(program.models_path) == "m.json"
    assert [each.reads for each in program.processors] == [frozenset({"model"})]
    assert program.warnings == ("plugins[3].parameters: cost-scorer takes none: leave them out",)


def test_flags() -> None:
    specs = ['body-field-to-header:x:{"fieldName":"user","headerName":"X-User"}', "base-model-to-header:b"]
    made = from_flags(specs, around=around())
    assert headers(made, user="u") == [("X-User", "u")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod\napiVersion: v1\n", "kind: 'Pod' is not what the router reads"),
        (BBR.replace("pluginRef: m}", "pluginRef: n}"), "request[0].pluginRef: no plugin is named 'n'"),
        (BBR.replace("field_name: model, ", ""), "fieldName: is missing"),
        (
            BBR.replace("type: base-model-to-header", "type: base-model-to-headr, name: base-model-to-header"),
            "did you mean 'base-model-to-header'?",
        ),
        (
            IPP.replace("type: base-model-to-header", "type: session-affinity, name: base-model-to-header"),
            "request[1].weight: base-model-to-header is a scorer, which needs a weight",
        ),
        (IPP.replace("- name: default", "- {name: other}\n- name: default"), "profiles: there are 2"),
        (IPP.replace("llm-d.ai/v1alpha1", "x/v1"), "apiVersion: 'x/v1' is not known"),
        (SELECTING.replace(", weight: 2", ""), "request[2].weight: inflight is a scorer, which needs a weight"),
        (SELECTING.replace("type: cost-scorer", "type: cost-scorr"), "did you mean 'cost-scorer'?"),
        (SELECTING.replace("{pluginRef: group}", "{pluginRef: source}"), "'source' is no plugin for this place"),
        (SELECTING.replace("extractors: [", "collectors: ["), "collectors[0].pluginRef: 'counter' is no plugin"),
        (SELECTING.replace("{pluginRef: group}", "{pluginRef: any}"), "there are 2 pickers, and one picks"),
        (SELECTING.replace("name: any", "name: group"), "'group' is there twice"),
        (SELECTING.replace("modelsPath: m.json", ""), "plugins[6].parameters.modelsPath: is missing"),
        (SELECTING.replace("type: single-profile-picker", "type: random-picker"), "profilePicker.pluginRef: 'single'"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        from_text(text, name="f", around=around())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"grpc_port": 9005}, "must differ"),
        ({"metrics_port": 70_000}, "is not a port"),
        ({"plugin": ("a:b",), "config_text": "x"}, "exclude each other"),
    ],
)
def test_flags_that_cannot_work(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        BbrSettings(**settings).check()


def config_map(name: str, base: str = "base", adapters: str = "", **metadata: Any) -> dict[str, Any]:
    labels = {LABEL: "true"}
    meta = {"name": name, "namespace": "ns", "labels": labels, **metadata}
    return {"metadata": meta, "data": {"baseModel": base, "adapters": adapters}}


def test_adapters_belong_to_base_models() -> None:
    adapters = Adapters()
    adapters.take(config_map("a", adapters="- one\n- ' two '\n"), label=LABEL)
    adapters.take(config_map("b", adapters="- three"), label=LABEL)
    assert [adapters.base_of(name) for name in ("one", " two ", "three", "base", "other")] == [
        "base", "base", "base", "base", "",
    ]  # fmt: skip
    adapters.take(config_map("a", adapters="- two"), label=LABEL)
    assert adapters.base_of("one") == ""
    adapters.gone(config_map("a"), label=LABEL)
    assert (adapters.base_of("two"), adapters.base_of("base")) == ("", "base"), "b still names it"
    adapters.take(config_map("b", labels={}), label=LABEL)
    assert (adapters.base_of("three"), adapters.base_of("base"), len(adapters)) == ("", "", 0)


def test_a_config_map_with_both_labels_counts_until_both_are_gone() -> None:
    adapters = Adapters()
    both = config_map("a", adapters="- lora", labels=dict.fromkeys(MANAGED, "true"))
    for label in MANAGED:
        assert adapters.take(both, label=label) == ""
    adapters.gone(both, label=MANAGED[0])
    assert adapters.base_of("lora") == "base"
    adapters.gone(both, label=MANAGED[1])
    assert adapters.base_of("lora") == ""


def test_of_two_that_claim_an_adapter_the_last_has_it_while_it_is_there() -> None:
    adapters = Adapters()
    adapters.take(config_map("a", base="x", adapters="- lora"), label=LABEL)
    adapters.take(config_map("b", base="y", adapters="- lora"), label=LABEL)
    assert adapters.base_of("lora") == "y"
    adapters.gone(config_map("b"), label=LABEL)
    assert adapters.base_of("lora") == "x"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (config_map("a", base=" "), "baseModel is missing"),
        (config_map("a", adapters="{"), "not valid YAML"),
        (config_map("a", adapters="one"), "adapters is no list"),
    ],
)
def test_a_bad_config_map_says_what_is_wrong_and_changes_nothing(document: dict[str, Any], words: str) -> None:
    adapters = Adapters()
    adapters.take(config_map("a", adapters="- lora"), label=LABEL)
    assert words in adapters.take(document, label=LABEL)
    assert adapters.base_of("lora") == "base"

"""Presets, configs and a service's own spec, in their order; what cannot be one says why."""

from typing import Any

import pytest
from tests.unit.render.serving.services import MODEL, document, rendered
from tests.unit.render.serving.test_service import find, main

from pointsman.render.serving.combine import CombineError


def config(**main: Any) -> dict[str, Any]:
    return {"template": {"containers": [{"name": "main", **main}]}}


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(CombineError, match="nested more than 60 deep") as error:
        rendered(document(template={"affinity": deep}))
    assert error.value.reason == "CombineBaseError"
    twice = document(baseRefs=[{"name": "a"}], template={"affinity": deep})
    with pytest.raises(CombineError, match="nested more than 60 deep"):
        rendered(twice, configs={"a": {"template": {"affinity": deep}}})


def test_later_ones_win() -> None:
    configs = {
        "a": config(image="a", args=["a"]),
        "b": config(image="b"),
        "kserve-config-llm-template": config(image="p"),
    }
    written = document(
        baseRefs=[{"name": "a"}, {"name": "b"}], template={"containers": [{"name": "main", "args": ["o"]}]}
    )
    stack = rendered(written, configs=configs)
    made = main(find(stack, "Deployment", "phi3-kserve"))
    assert (made["image"], made["args"]) == ("b", ["o"])
    assert stack.applied == ("kserve-config-llm-template", "a", "b")


def test_a_config_may_ask_for_a_picker_and_its_preset_comes_first() -> None:
    configs = {"a": {"router": {"scheduler": {"replicas": 2}}}}
    stack = rendered(document(baseRefs=[{"name": "a"}]), configs=configs)
    assert find(stack, "Deployment", "phi3-kserve-router-scheduler")["spec"]["replicas"] == 2
    assert stack.applied == ("config-llm-scheduler", "config-llm-template", "a")


def test_the_model_s_name_may_come_from_a_config() -> None:
    configs = {
        "a": {"model": {"uri": "hf://a/b", "name": "c"}},
        "kserve-config-llm-template": config(args=["{{ .Spec.Model.Name }}"]),
    }
    stack = rendered(document(baseRefs=[{"name": "a"}]), configs=configs)
    assert main(find(stack, "Deployment", "phi3-kserve"))["args"] == ["c"]


@pytest.mark.parametrize("simulate", [False, True])
def test_the_model_of_a_config_is_what_is_served(simulate: bool) -> None:
    configs = {"a": {"model": MODEL}, "b": {"model": {**MODEL, "name": "other"}}}
    stack = rendered(document(baseRefs=[{"name": "a"}, {"name": "b"}]), configs=configs, simulate=simulate)
    container = main(find(stack, "Deployment", "phi3-kserve"))
    line = [*container.get("command", ()), *container.get("args", ())]
    wanted = ["--model", "other"] if simulate else ["vllm", "serve", "microsoft/Phi-3-mini-4k-instruct"]
    assert line[: len(wanted)] == wanted
    assert simulate or line[3:5] == ["--served-model-name", "other"]


def test_the_volume_of_a_config_s_model_is_mounted() -> None:
    stack = rendered(document(baseRefs=[{"name": "a"}]), configs={"a": {"model": {"uri": "pvc://models/phi3"}}})
    pod = find(stack, "Deployment", "phi3-kserve")["spec"]["template"]["spec"]
    claim = {"claimName": "models", "readOnly": True}
    assert {"name": "model", "persistentVolumeClaim": claim} in pod["volumes"]


@pytest.mark.parametrize(
    ("written", "configs", "reason", "sentence"),
    [
        pytest.param(
            document(baseRefs=[{"name": "gone"}]),
            {},
            "ConfigNotFound",
            "names LLMInferenceServiceConfig 'gone'",
            id="gone",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}]),
            {"a": {"template": {"containers": [{"image": "x"}]}}},
            "CombineBaseError",
            "spec.template.containers[0] has no name",
            id="no name",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}]),
            {"a": config(args=["{{ .Spec.Nothing }}"])},
            "CombineBaseError",
            "spec.template.containers[0].args[0]: .Spec.Nothing is not set",
            id="template",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}], template={"tolerations": {}}),
            {"a": {"template": {"tolerations": []}}},
            "CombineBaseError",
            "spec.template.tolerations is a block here and a list in",
            id="conflict",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}], template={"volumes": {}}),
            {"a": {}},
            "CombineBaseError",
            "the service: spec.template.volumes is {}: write a list",
            id="no list",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}]),
            {"a": {"router": {"route": {"http": {"spec": {"rules": [{"backendRefs": ["pool"]}]}}}}}},
            "CombineBaseError",
            "Config a: spec.router.route.http.spec.rules[0].backendRefs[0] is 'pool': write a block",
            id="no block",
        ),
        pytest.param(
            document(router={"route": {"http": {"spec": {"parentRefs": [{"namespace": "infra"}]}}}}),
            {},
            "CombineBaseError",
            "spec.router.route.http.spec.parentRefs[0] has no name: give it one",
            id="no name",
        ),
        pytest.param(
            document(
                router={"scheduler": {"template": {"containers": [{"name": "main", "ports": [{"name": "grpc"}]}]}}}
            ),
            {},
            "CombineBaseError",
            "containers[0].ports[0] has no containerPort: give it one",
            id="no number",
        ),
        pytest.param(
            document(template={"containers": [{"name": ["main"]}]}),
            {},
            "CombineBaseError",
            "spec.template.containers[0].name is ['main']: write a text",
            id="no text",
        ),
        pytest.param(
            document(template={"containers": [{"name": "main", "args": [8000]}]}),
            {},
            "CombineBaseError",
            "spec.template.containers[0].args[0] is 8000: write a text",
            id="number for a text",
        ),
        pytest.param(
            document(baseRefs=[{"name": "a"}], router={"scheduler": {"config": {"ref": {"name": "m"}}}}),
            {"a": {"router": {"scheduler": {"config": {"inline": {"a": 1}}}}}},
            "InvalidRenderedConfig",
            "inline and ref exclude each other",
            id="two configurations",
        ),
        pytest.param(
            document(router={"route": {"http": {"refs": [{"name": "r"}]}}, "gateway": {}}),
            {},
            "InvalidRenderedConfig",
            "take one of them away",
            id="two masters",
        ),
        pytest.param(
            document(
                router={
                    "route": {"http": {"spec": {"parentRefs": [{"name": "a"}]}}},
                    "gateway": {"refs": [{"name": "b"}]},
                }
            ),
            {},
            "InvalidRenderedConfig",
            "name different Gateways",
            id="two gateways",
        ),
        pytest.param(document("a.b"), {}, "InvalidRenderedConfig", "metadata.name 'a.b' cannot be", id="dots"),
        pytest.param(document("a" * 64), {}, "InvalidRenderedConfig", "at most 63", id="long"),
    ],
)
def test_what_cannot_be_one(written: dict[str, Any], configs: dict[str, Any], reason: str, sentence: str) -> None:
    with pytest.raises(CombineError) as error:
        rendered(written, configs=configs)
    assert error.value.reason == reason
    assert sentence in str(error.value)

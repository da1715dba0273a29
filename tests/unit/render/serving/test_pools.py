from typing import Any

import pytest
from tests.unit.render.serving.services import MESH, document, rendered
from tests.unit.render.serving.test_service import find

from pointsman.render.serving.pools import current

OLD = {
    "extensionRef": {"name": "mine", "portNumber": 9002, "failureMode": "FailClose"},
    "selector": {"app": "vllm"},
    "targetPortNumber": 9000,
}
NEW = {
    "endpointPickerRef": {"name": "mine", "port": {"number": 9002}, "failureMode": "FailClose"},
    "selector": {"matchLabels": {"app": "vllm"}},
    "targetPorts": [{"number": 9000}],
}


@pytest.mark.parametrize("spec", [OLD, NEW], ids=["v1alpha2 of x-k8s", "v1"])
def test_both_spellings_are_one(spec: dict[str, Any]) -> None:
    assert current(spec) == NEW


@pytest.mark.parametrize("spec", [OLD, NEW], ids=["v1alpha2 of x-k8s", "v1"])
def test_either_is_merged_over_the_preset(spec: dict[str, Any]) -> None:
    stack = rendered(document(router={"scheduler": {"pool": {"spec": spec}}}), MESH)
    made = find(stack, "InferencePool", "phi3-inference-pool")["spec"]
    assert made["endpointPickerRef"]["failureMode"] == "FailClose"
    assert made["targetPorts"] == [{"number": 9000}]
    assert stack.failure_mode == "FailClose"

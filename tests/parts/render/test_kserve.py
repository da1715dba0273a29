"""KServe's own presets, as its releases have them, in the place of ours."""

from typing import Any

import pytest
from tests import kserve
from tests.unit.render.serving.services import ALL, BARE, MESH, document, rendered
from tests.unit.render.serving.test_service import find, main
from tests.unit.render.serving.test_templates import CONTEXT

from pointsman.render.serving.templates import expanded


@pytest.mark.parametrize("version", kserve.RELEASES)
def test_every_preset_of_kserve_is_understood(version: str) -> None:
    parallelism = {"data": 8, "dataLocal": 4, "tensor": 2}
    spec = {"model": {"name": "m"}, "parallelism": parallelism, "prefill": {"parallelism": parallelism}}
    gateway = {"IngressGatewayName": "g", "IngressGatewayNamespace": "n"}
    found = kserve.presets(version)
    assert len(found) == 8
    for preset in found.values():
        made = expanded(preset, {**CONTEXT, "Spec": spec, "GlobalConfig": gateway})
        assert "{{" not in repr(made)


@pytest.mark.parametrize("version", kserve.RELEASES)
@pytest.mark.parametrize("facts", [BARE, MESH], ids=["bare", "mesh"])
def test_presets_of_kserve_do_as_well_as_ours(version: str, facts: Any) -> None:
    """What KServe left on a cluster is used, and its picker's command line is its own."""
    configs = kserve.presets(version)
    stack = rendered(document(model={"uri": "hf://a/b"}, router=ALL, prefill={}), facts, configs=configs)
    assert {name for name in stack.applied if name.startswith("kserve-")} == set(stack.applied)
    picker = main(find(stack, "Deployment", "phi3-kserve-router-scheduler"))
    assert picker["args"][1] == "phi3-inference-pool"
    if facts is MESH:
        pool = find(stack, "InferencePool", "phi3-inference-pool")["spec"]
        assert pool["targetPorts"] == [{"number": 8000}]
        assert pool["endpointPickerRef"]["name"] == "phi3-epp-service"
        route = find(stack, "HTTPRoute", "phi3-kserve-route")
        assert route["spec"]["rules"][0]["backendRefs"][0]["group"] == "inference.networking.k8s.io"

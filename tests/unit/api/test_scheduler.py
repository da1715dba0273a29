"""SchedulerInstall as a file says it: defaults, and what is refused before anything is made."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.render.scheduler.installs import ON, resource, sample

from pointsman.api.crd import scheduler_definition
from pointsman.api.scheduler import SchedulerInstall


def test_the_definition_is_that_of_the_requirement() -> None:
    spec = scheduler_definition()["spec"]
    assert (spec["group"], spec["names"]["plural"], spec["names"]["shortNames"]) == (
        "sim.llm-d.io",
        "schedulerinstalls",
        ["schedinst"],
    )
    (version,) = spec["versions"]
    assert version["subresources"] == {"status": {}}
    shown = [one["name"] for one in version["additionalPrinterColumns"] if not one.get("priority")]
    assert shown == ["Ready", "Way", "Age"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["metadata", "spec"]
    assert schema["properties"]["spec"]["required"] == ["simulatorNamespace"]


def test_defaults() -> None:
    spec = resource(proxyService={}, epp={}, gateway={}, routing={}, envoyFilter={}).spec
    assert spec.proxy_service and spec.epp and spec.gateway and spec.routing and spec.envoy_filter
    assert (spec.proxy_service.name, spec.proxy_service.port) == ("gaie-inference-scheduling-proxy", 8200)
    assert (spec.epp.name, spec.epp.port, spec.epp.replicas) == ("gaie-inference-scheduling-epp", 9002, 1)
    assert (spec.epp.pool_name, spec.epp.config_profile) == ("gaie-inference-scheduling", "default")
    assert spec.epp.image == "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0"
    assert (spec.gateway.name, spec.gateway.class_name) == ("infra-inference-scheduling-inference-gateway", "istio")
    assert (spec.gateway.listener_port, spec.gateway.listener_protocol) == (80, "HTTP")
    assert (spec.routing.backend_type, spec.routing.http_route_name) == ("Service", "llm-d-inference-scheduling")
    assert spec.envoy_filter.name == "epp-ext-proc"


def test_the_sample_says_everything() -> None:
    spec = sample().spec
    assert all(block is not None for block in (spec.proxy_service, spec.epp, spec.gateway, spec.routing))
    assert spec.destination_rule is not None and spec.envoy_filter is not None


REFUSED = [
    ({"simulatorNamespace": None}, "simulatorNamespace"),
    ({"simulatorNamespace": "Not-A-Namespace"}, "simulatorNamespace"),
    ({"epp": {"port": 9090}}, "epp"),
    ({"epp": {"port": 70_000}}, "port"),
    ({"epp": {"replicas": -1}}, "replicas"),
    ({"epp": {"configProfile": "fast"}}, "configProfile"),
    ({"epp": {"hashBlockSize": 5}}, "hashBlockSize"),
    ({"gateway": {"listenerProtocol": "TCP"}}, "listenerProtocol"),
    ({"gateway": {"listenerPort": 0}}, "listenerPort"),
    ({"routing": {"backendType": "Pod"}}, "backendType"),
    ({"routing": ON | {"way": "Magic"}}, "way"),
    ({"routing": ON}, "routing.enabled is true and there is no gateway to route from"),
    ({"envoyFilter": ON}, "envoyFilter.enabled is true and epp.enabled is not"),
    ({"epp": {"name": "gaie-inference-scheduling-proxy"}}, "are not all different: choose other names"),
    ({"gateway": {"name": "x-pods"}, "proxyService": {"name": "x"}}, "are not all different: choose other names"),
    ({"destinationRule": {"algorithm": "BEST"}}, "algorithm"),
    ({"envoyFilter": {"workloadSelector": {"app": "not a label"}}}, "workloadSelector"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resource(**spec)
    assert words in str(caught.value)


def test_nothing_at_all_is_refused() -> None:
    bare = {"apiVersion": "sim.llm-d.io/v1alpha1", "kind": "SchedulerInstall", "metadata": {"name": "a"}}
    with pytest.raises(ValidationError, match="spec"):
        SchedulerInstall.model_validate(bare)


def test_long_names_are_refused() -> None:
    resource("a" * 40)
    with pytest.raises(ValidationError, match=r"metadata\.name has more than 40 characters"):
        resource("a" * 41)

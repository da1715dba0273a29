"""From what the cluster shows to conditions."""

from typing import Any

import pytest
from tests.unit.render.serving.services import ALL, BARE, MESH, document, rendered

from pointsman.kube import Condition
from pointsman.operator.llmfindings import LLMFindings, ObservedService, failed, look, stopped
from pointsman.render.manifests.facts import Facts

NAMES = ("phi3-kserve", "phi3-kserve-router-scheduler", "phi3-kserve-gateway")


def deployment(name: str, *, available: int = 1) -> dict[str, Any]:
    status = {"observedGeneration": 1, "availableReplicas": available, "replicas": 1, "updatedReplicas": 1}
    spec = {"selector": {"matchLabels": {"a": name}}}
    return {"metadata": {"name": name, "generation": 1}, "spec": spec, "status": status}


def yes(*types: str, status: str = "True") -> list[dict[str, Any]]:
    return [{"type": type_, "status": status, "reason": "R", "message": "so it is"} for type_ in types]


def sight(**more: Any) -> ObservedService:
    seen: dict[str, Any] = {"deployments": {name: deployment(name) for name in NAMES}, "pods": []}
    return ObservedService(**seen | more)


def on_mesh(**more: Any) -> ObservedService:
    listener = {"name": "https", "port": 8443, "protocol": "HTTPS"}
    gateway = {
        "spec": {"listeners": [listener]},
        "status": {"conditions": yes("Programmed"), "addresses": [{"value": "example.com"}]},
    }
    seen: dict[str, Any] = {
        "gateways": {("kserve", "kserve-ingress-gateway"): gateway},
        "routes": {"phi3-kserve-route": {"status": {"parents": [{"conditions": yes("Accepted", "ResolvedRefs")}]}}},
        "pools": {"phi3-inference-pool": {"status": {"parents": [{"conditions": yes("Accepted")}]}}},
    }
    return sight(**seen | more)


def of(found: LLMFindings, type_: str) -> Condition:
    (one,) = (condition for condition in found.conditions if condition.type == type_)
    return one


def test_all_is_well_without_a_gateway_api() -> None:
    found = look(rendered(document(router=ALL), BARE), sight())
    assert found.ready
    assert found.url == "http://phi3-kserve-gateway.models.svc.cluster.local/models/phi3"


def test_all_is_well_on_a_mesh() -> None:
    found = look(rendered(document(router=ALL), MESH), on_mesh())
    assert found.ready, found
    assert found.url == "https://example.com:8443/models/phi3"


def test_an_address_of_version_six_is_a_url() -> None:
    gateway = {
        "spec": {"listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]},
        "status": {"conditions": yes("Programmed"), "addresses": [{"value": "fd00::7"}]},
    }
    found = look(
        rendered(document(router=ALL), MESH), on_mesh(gateways={("kserve", "kserve-ingress-gateway"): gateway})
    )
    assert found.url == "http://[fd00::7]:8080/models/phi3"


@pytest.mark.parametrize(
    ("more", "condition", "reason"),
    [
        (
            {
                "routes": {
                    "phi3-kserve-route": {
                        "metadata": {"generation": 2},
                        "status": {"parents": [{"conditions": [yes("Accepted")[0] | {"observedGeneration": 1}]}]},
                    }
                }
            },
            "HTTPRoutesReady",
            "HTTPRoutesNotReady",
        ),
        ({"routes": {"phi3-kserve-route": {"status": {"parents": [{}]}}}}, "HTTPRoutesReady", "HTTPRoutesNotReady"),
        ({"gateways": {}}, "GatewaysReady", "GatewayNotFound"),
        ({"gateways": {("kserve", "kserve-ingress-gateway"): {}}}, "GatewaysReady", "GatewaysNotReady"),
        ({"routes": {}}, "HTTPRoutesReady", "HTTPRouteNotFound"),
        ({"routes": {"phi3-kserve-route": {}}}, "HTTPRoutesReady", "HTTPRoutesNotReady"),
        (
            {
                "routes": {
                    "phi3-kserve-route": {"status": {"parents": [{"conditions": yes("ResolvedRefs", status="False")}]}}
                }
            },
            "HTTPRoutesReady",
            "HTTPRoutesNotReady",
        ),
        ({"pools": {}}, "InferencePoolReady", "InferencePoolNotFound"),
        (
            {
                "pools": {
                    "phi3-inference-pool": {
                        "status": {"parents": [{"parentRef": {"kind": "Status", "name": "default"}}]}
                    }
                }
            },
            "InferencePoolReady",
            "WaitingForGateway",
        ),
        (
            {
                "pools": {
                    "phi3-inference-pool": {"status": {"parents": [{"conditions": yes("Accepted", status="False")}]}}
                }
            },
            "InferencePoolReady",
            "InferencePoolNotReady",
        ),
        ({"handshake": "no ALPN"}, "SchedulerWorkloadReady", "HandshakeFailed"),
        ({"certificate": Condition("CertificateReady", "False", "Issuing", "w")}, "CertificateReady", "Issuing"),
    ],
)
def test_what_is_missing_is_told_upwards(more: dict[str, Any], condition: str, reason: str) -> None:
    found = look(rendered(document(router=ALL), MESH), on_mesh(**more))
    for type_ in (condition, "RouterReady", "Ready"):
        assert (of(found, type_).status, of(found, type_).reason) == ("False", reason)
    assert condition in of(found, "Ready").message
    assert of(found, "WorkloadsReady").status == "True"


def test_a_gateway_of_ours_must_answer() -> None:
    found = look(rendered(document(router=ALL), BARE), sight(answer="it answers 503"))
    assert of(found, "GatewaysReady").reason == "NoAnswer"
    assert not found.ready


def test_no_definition_of_pools_is_told() -> None:
    facts = Facts(gateway_api=True)
    assert (
        of(look(rendered(document(router=ALL), facts), on_mesh()), "InferencePoolReady").reason == "DefinitionMissing"
    )


def test_servers_that_are_missing() -> None:
    few = {name: deployment(name, available=int(name != "phi3-kserve")) for name in NAMES}
    found = look(rendered(document(router=ALL), BARE), sight(deployments=few))
    assert of(found, "MainWorkloadReady").reason == "Progressing"
    assert of(found, "WorkloadsReady").status == "False" and of(found, "RouterReady").status == "True"


def test_stopped() -> None:
    stack = rendered(document(annotations={"serving.kserve.io/stop": "true"}), BARE)
    assert of(stopped(stack), "Ready").reason == "Stopped"


def test_what_could_not_be_combined_keeps_what_was_known() -> None:
    known = [{"type": "Ready", "status": "True"}, {"type": "WorkloadsReady", "status": "True", "reason": "Ready"}]
    found = failed("ConfigNotFound", "gone", known=known, combined=False)
    assert [(one.type, one.status) for one in found.conditions] == [
        ("Ready", "False"),
        ("PresetsCombined", "False"),
        ("WorkloadsReady", "True"),
    ]

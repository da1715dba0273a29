"""The Gateway API Inference Extension's conformance suite with our picker behind Istio: all of it passes.

The suite tests a gateway, and uses a picker to see whether it is followed. So there is a control: a picker without the
two plugins that the suite wants of it must fail the tests that go by them, and no others.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e import conformance
from tests.e2e.cluster import Cluster
from tests.e2e.conformance import APPS, Outcome, Parts

from pointsman.epp.plugins.conformance import SERVED_HEADER

FOLLOWS = "GatewayFollowingEPPRouting"
FOLLOWS_RANKS = "GatewayFollowingEPPRoutingWithDataParallelism"
SERVED = "GatewayDestinationEndpointServed"
PROTOCOL = "InferencePoolAppProtocol"
# What each says of an answer that went by no header and does not tell whose it is.
UNTOLD = f"expected {SERVED_HEADER} header to be set, actual headers"
REASONS = {
    FOLLOWS: r"expected pod name to start with primary-\S+, got primary-",
    FOLLOWS_RANKS: r"expected pod name to start with dp-\S+, got dp-",
    SERVED: UNTOLD,
    PROTOCOL: UNTOLD,
}
# Wants one Pod of three to answer three times in a row, which random picks do sooner or later.
BY_CHANCE = "EppUnAvailableFailOpen"
RANDOM = {
    "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [{"type": "random-picker"}],
    "schedulingProfiles": [{"name": "conformance-profile", "plugins": [{"pluginRef": "random-picker"}]}],
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def parts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Yield the parts, with Istio on the node."""
    if os.environ.get("E2E_KUBECONFIG"):
        pytest.skip("the conformance suite needs images that only a node of our own is given: unset E2E_KUBECONFIG")
    found = Parts.find(tmp_path_factory.mktemp("conformance"))
    with conformance.installed(cluster, found):
        yield found


@pytest.fixture(scope="module")
def outcome(cluster: Cluster, parts: Parts) -> Outcome:
    """The suite as it is."""
    return conformance.run(cluster, parts)


def test_all_of_the_suite_passes(cluster: Cluster, outcome: Outcome) -> None:
    (profile,) = outcome.report["profiles"]
    assert outcome.said("FAIL") == set(), outcome.printed[-5000:]
    assert profile["core"]["statistics"] == {"Passed": 13, "Failed": 0, "Skipped": 0}
    assert len(outcome.said("PASS")) == 13
    assert outcome.report["GatewayAPIInferenceExtensionVersion"] == "v1.5.0"
    assert "picker: ready" in cluster.kubectl("logs", "deployment/primary-app-endpoint-picker", "-n", APPS)


def test_without_the_plugins_of_the_suite_what_needs_them_fails(
    cluster: Cluster, parts: Parts, outcome: Outcome
) -> None:
    manifests = f"-manifests={conformance.with_configuration(cluster, parts, RANDOM)}"

    def fail(name: str) -> Outcome:
        # What cannot come is not waited for: the suite would do it 200 seconds for each Pod.
        return conformance.run(cluster, parts, manifests, f"-run-test={name}", "-patience=10s", "-test.failfast")

    with ThreadPoolExecutor() as together:
        failed = dict(zip(REASONS, together.map(fail, REASONS), strict=True))
    for name, reason in REASONS.items():
        assert failed[name].said("FAIL") == {name}, failed[name].printed[-5000:]
        assert re.search(reason, failed[name].printed), failed[name].printed[-5000:]
    skipped = ",".join((*REASONS, BY_CHANCE))
    passed = conformance.run(cluster, parts, manifests, f"-skip-tests={skipped}")
    assert passed.said("PASS") == set(outcome.verdicts) - {*REASONS, BY_CHANCE}, passed.printed[-5000:]

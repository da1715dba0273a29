"""`kubectl apply -k config/default` on a real API server: what it makes, and what the operator may then do."""

import json
from collections.abc import Iterator, Sequence

import pytest
from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.packages import ACCOUNT, DEFAULT, SYSTEM, by_name, documents
from tests.cluster.simulators import until_served
from tests.waiting import wait_until

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import render

FACTS = (Facts(), Facts(inference_pool=True))
OPERATOR = ("deployment/pointsman-operator", "-n", SYSTEM)


@pytest.fixture(scope="module")
def installed(bare: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane on which nothing was but our manifests."""
    bare.kubectl("apply", "--server-side", "-k", str(DEFAULT))
    wait_until(lambda: allowed(bare, [("list", "pods")]))  # the API server hears of a binding a moment later
    until_served(bare, str(SIMULATOR_DEPLOYMENT))  # a kind whose cache is still filling takes minutes to be deleted
    yield bare
    bare.kubectl("delete", "-k", str(DEFAULT), f"--timeout={DEFINITION_PATIENCE}s")


def allowed(plane: ControlPlane, asked: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those verbs and resources (`name.group/subresource`) that the API server grants the operator."""
    reviews = []
    for verb, resource in asked:
        names, _, subresource = resource.partition("/")
        name, _, group = names.partition(".")
        attributes = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": "any"}
        spec = {"user": ACCOUNT, "resourceAttributes": attributes}
        reviews.append({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answers = plane.kubectl("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}', text=listed).split()
    return [one for one, answer in zip(asked, answers, strict=True) if answer == "true"]


def test_the_operator_rolls_out_and_a_second_apply_changes_nothing(installed: ControlPlane) -> None:
    if installed.complete:
        installed.kubectl("rollout", "status", *OPERATOR, "--timeout=60s")
    before = installed.kubectl("get", *OPERATOR, "-o", "jsonpath={.metadata.resourceVersion} {.metadata.generation}")
    installed.kubectl("apply", "--server-side", "-k", str(DEFAULT))
    after = installed.kubectl("get", *OPERATOR, "-o", "jsonpath={.metadata.resourceVersion} {.metadata.generation}")
    assert before.split()[1] == after.split()[1] == "1"


def test_it_may_make_the_parts_of_a_stack(installed: ControlPlane) -> None:
    parts = (
        "configmaps",
        "services",
        "serviceaccounts",
        "deployments.apps",
        "networkpolicies.networking.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "inferencepools.inference.networking.k8s.io",
        "gateways.gateway.networking.k8s.io",
        "httproutes.gateway.networking.k8s.io",
        "destinationrules.networking.istio.io",
    )
    asked = [(verb, part) for verb in ("get", "list", "watch", "create", "patch", "delete") for part in parts]
    assert allowed(installed, asked) == asked


def test_it_may_do_nothing_else(installed: ControlPlane) -> None:
    asked = [
        *(("get", "secrets"), ("list", "secrets"), ("get", "pods")),
        # Who may read metrics is asked with the reader's own token.
        *(("create", "tokenreviews.authentication.k8s.io"), ("create", "subjectaccessreviews.authorization.k8s.io")),
        # Pods are for Deployments to make and to end, and nothing runs in them but what they were made for.
        *(("create", "pods"), ("delete", "pods"), ("create", "pods/exec")),
        # Resources are people's: theirs to write and to delete.
        *(("create", "simulatordeployments.sim.llm-d.io"), ("delete", "simulatordeployments.sim.llm-d.io")),
        *(("create", "schedulerinstalls.sim.llm-d.io"), ("delete", "schedulerinstalls.sim.llm-d.io")),
        # No way up, nor around.
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        *(("escalate", "roles.rbac.authorization.k8s.io"), ("bind", "roles.rbac.authorization.k8s.io")),
        *(("patch", "customresourcedefinitions.apiextensions.k8s.io"), ("create", "namespaces")),
        *(("delete", "leases.coordination.k8s.io"), ("create", "virtualservices.networking.istio.io")),
    ]
    assert allowed(installed, asked) == []


def picker_role(replicas: int, facts: Facts = FACTS[0]) -> dict[str, object]:
    """Return the Role that a stack's picker gets."""
    resource = SimulatorDeployment.model_validate(
        {
            "apiVersion": "sim.llm-d.io/v1alpha1",
            "kind": "SimulatorDeployment",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"epp": {"enabled": True, "replicas": replicas}},
        }
    )
    (role,) = (one for one in render(resource, facts) if one["kind"] == "Role")
    return role


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("facts", FACTS, ids=["selector", "pool"])
def test_it_may_grant_what_pickers_need(installed: ControlPlane, replicas: int, facts: Facts) -> None:
    role = json.dumps(picker_role(replicas, facts))
    installed.kubectl("create", "--dry-run=server", "--as", ACCOUNT, "-f", "-", text=role)


def test_it_may_not_grant_more(installed: ControlPlane) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role = json.dumps({**picker_role(1), "rules": [secrets]})
    with pytest.raises(AssertionError, match="attempting to grant RBAC permissions not currently held"):
        installed.kubectl("create", "--dry-run=server", "--as", ACCOUNT, "-f", "-", text=role)


def test_everything_is_in_one_namespace_and_restricted(installed: ControlPlane) -> None:
    found = by_name(documents(installed.kubectl("kustomize", str(DEFAULT))))
    assert {namespace for _, namespace, _ in found} == {"", SYSTEM}
    # The namespace refuses what is not restricted, so that the Pod was accepted says enough about its context.
    assert found["Namespace", "", SYSTEM]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    if installed.complete:
        pods = installed.kubectl("get", "pods", "-n", SYSTEM, "-o", "name")
        assert pods.startswith("pod/pointsman-operator-")


def test_what_is_not_restricted_is_refused(installed: ControlPlane) -> None:
    container = {"name": "x", "image": "x", "securityContext": {"privileged": True}}
    metadata = {"name": "x", "namespace": SYSTEM}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        installed.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))

"""The commands of the operator's requirement, word for word, on a real node; the proof is the Pod that answered.

One story in order: install, the whole stack, requests while its simulators come and go, deletion, the minimal stack.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import assets as browser
from tests.cluster.assets import Missing
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import traffic
from tests.waiting import wait_until

NS = ("-n", "llm-d-sim")
SYSTEM = ("-n", "pointsman-system")
READER = "system:serviceaccount:pointsman-system:requirement-reader"
FULL = "simulatordeployment/llm-sim-full"
DECODE = "ms-sim-llm-d-modelservice-decode"
GATEWAYS = ("infra-sim-inference-gateway", "infra-sim-inference-gateway-istio")
OWNED = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pods,endpointslices"
RULES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "destinationrules.networking.istio.io"},
    "spec": {
        "group": "networking.istio.io",
        "scope": "Namespaced",
        "names": {"plural": "destinationrules", "singular": "destinationrule", "kind": "DestinationRule"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def installed(cluster: Cluster, named: None) -> Iterator[str]:
    """Install the operator and the full sample as the requirement says; yield what the scripts printed."""
    cluster.bash("kubectl apply -f config/crd/sim.llm-d.io_simulatordeployments.yaml")
    said = cluster.bash("./hack/create-epp-rbac.sh")
    # The strictest namespace there is: what runs here runs everywhere.
    cluster.kubectl("label", "namespace", NS[1], "pod-security.kubernetes.io/enforce=restricted")
    yield said + cluster.bash("./hack/redeploy-with-fixes.sh")
    cluster.bash("kubectl delete -k config/default --ignore-not-found --timeout=180s")
    cluster.bash("kubectl delete namespace llm-d-sim --ignore-not-found --timeout=180s")


@pytest.fixture(scope="module")
def minimal(cluster: Cluster, installed: str) -> str:
    """Have the minimal sample instead of the full one; return its name."""
    cluster.kubectl("delete", FULL, *NS, "--ignore-not-found", "--timeout=120s")
    cluster.kubectl("delete", "namespace", "llm-d-sim", "--ignore-not-found", "--timeout=120s")
    cluster.bash("""
        kubectl create namespace llm-d-sim
        kubectl apply -f config/samples/sim_v1alpha1_simulatordeployment_minimal.yaml
    """)
    stack = "simulatordeployment/llm-sim-minimal"
    cluster.kubectl("wait", stack, *NS, "--for=condition=Ready", "--timeout=120s")
    return stack


def ready_pods(cluster: Cluster, labels: str) -> list[str]:
    """Return the Pods that are ready and stay."""
    found = cluster.get("pods", *NS, "-l", labels)["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def names(cluster: Cluster, labels: str) -> set[str]:
    """Return all Pods, those that are ending included."""
    return {pod["metadata"]["name"] for pod in cluster.get("pods", *NS, "-l", labels)["items"]}


def evict(cluster: Cluster, pod: str) -> None:
    """Ask for a Pod's eviction, as a drained node does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NS[1]}}
    path = f"/api/v1/namespaces/{NS[1]}/pods/{pod}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))


def left(cluster: Cluster) -> list[str]:
    """Return what is in the namespace that does not belong to every namespace."""
    own = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    return [name for name in cluster.kubectl("get", OWNED, *NS, "-o", "name").split() if name not in own]


def test_the_scripts_install_everything(cluster: Cluster, installed: str) -> None:
    assert "role.rbac.authorization.k8s.io/gaie-sim-epp serverside-applied" in installed
    assert "simulatordeployment.sim.llm-d.io/llm-sim-full condition met" in installed
    names = cluster.kubectl("get", "deployments", *NS, "-o", "jsonpath={.items[*].metadata.name}").split()
    assert sorted(names) == sorted([*GATEWAYS, "gaie-sim-epp", DECODE, "ms-sim-llm-d-modelservice-prefill"])
    # What the first script made ahead is the stack's now.
    owner = "jsonpath={.metadata.ownerReferences[0].name}"
    assert cluster.kubectl("get", "role", "gaie-sim-epp", *NS, "-o", owner) == "llm-sim-full"


def test_checks_of_the_troubleshooting_section(cluster: Cluster, installed: str) -> None:
    assert "picker: ready" in cluster.bash("kubectl logs -n llm-d-sim -l component=epp --tail=-1")
    cluster.bash("kubectl logs -n llm-d-sim -l component=gateway")
    assert len(ready_pods(cluster, "llm-d.ai/role=decode")) == 2
    shown = cluster.bash("kubectl get endpoints gaie-inference-scheduling-proxy -n llm-d-sim")
    assert shown.count(":8200") == 2
    service = cluster.bash("kubectl get svc infra-sim-inference-gateway -n llm-d-sim -o yaml")
    assert re.search(r"port: 8080\n\s+protocol: TCP\n\s+targetPort: 80\n", service)


def test_no_pod_was_restarted(cluster: Cluster, installed: str) -> None:
    counts = cluster.kubectl("get", "pods", *NS, "-o", "jsonpath={..containerStatuses[*].restartCount}")
    assert set(counts.split()) == {"0"}


@pytest.fixture(scope="module")
def token(cluster: Cluster, installed: str) -> Iterator[str]:
    """The token of an account that may read metrics."""
    account = ("serviceaccount", "requirement-reader", *SYSTEM)
    cluster.kubectl("create", *account)
    binding = ("clusterrolebinding", "requirement-reader")
    subject = f"--serviceaccount={SYSTEM[1]}:requirement-reader"
    cluster.kubectl("create", *binding, "--clusterrole=pointsman-metrics-reader", subject)
    wait_until(lambda: "yes" in cluster.kubectl("auth", "can-i", "get", "/debug/decisions", f"--as={READER}"))
    yield cluster.kubectl("create", "token", "requirement-reader", *SYSTEM).strip()
    cluster.kubectl("delete", *binding)
    cluster.kubectl("delete", *account, "--ignore-not-found")


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_port_forward_reaches_the_pod_that_was_picked(
    cluster: Cluster, installed: str, token: str, gateway: str
) -> None:
    answer = cluster.bash(f"""
        kubectl port-forward -n llm-d-sim svc/{gateway} 8080:8080 >/dev/null &
        trap 'kill $!' EXIT
        curl -si --retry 20 --retry-delay 1 --retry-connrefused -X POST http://127.0.0.1:8080/v1/completions \\
          -H "Content-Type: application/json" -H 'x-request-id: {gateway}-1' \\
          -d '{{"model": "random", "prompt": "test", "max_tokens": 5}}'
    """)
    assert answer.startswith("HTTP/1.1 200")
    (served,) = re.findall(r"x-inference-pod: (\S+)", answer)
    told = cluster.bash(f"""
        kubectl port-forward -n llm-d-sim deployment/gaie-sim-epp 9090:9090 >/dev/null &
        trap 'kill $!' EXIT
        curl -s --retry 20 --retry-delay 1 --retry-connrefused -H 'Authorization: Bearer {token}' \\
          'http://127.0.0.1:9090/debug/decisions?id={gateway}-1'
    """)
    (decision,) = json.loads(told)["decisions"]
    (chosen,) = (one["name"] for one in decision["candidates"] if one["address"] == decision["picked"][0])
    assert served == chosen.removesuffix("-rank-0")
    assert served in ready_pods(cluster, "llm-d.ai/role=decode")


def test_the_page_is_watched_through_a_port_forward(cluster: Cluster, installed: str, token: str) -> None:
    try:
        folder = browser.find()
    except Missing as missing:
        pytest.skip(str(missing))
    told = cluster.bash(f"""
        kubectl port-forward -n llm-d-sim deployment/gaie-sim-epp 9090:9090 >/dev/null &
        trap 'kill $!' EXIT
        curl -s -o /dev/null --retry 20 --retry-delay 1 --retry-connrefused http://127.0.0.1:9090/
        {sys.executable} -m tests.browser.visit {folder} http://127.0.0.1:9090/ {token}
    """)
    shown = json.loads(told)
    assert shown["status"] == "● live"
    watched = {name.removesuffix("-rank-0") for name in shown["endpoints"]}
    assert watched >= set(ready_pods(cluster, "llm-d.ai/role=decode"))


def test_no_request_fails_while_simulators_come_and_go(cluster: Cluster, installed: str, namespace: str) -> None:
    deployment, decoding = f"deployment/{DECODE}", "llm-d.ai/role=decode"
    slow = ["--time-to-first-token", "150"]  # so that a Pod which is killed has requests under way

    def change(replicas: int, *, args: list[str]) -> set[str]:
        """Patch the decode stage, wait until it is so and no other Pod is left, and return its Pods."""
        patch = {"spec": {"decode": {"replicas": replicas, "args": args}}}
        cluster.kubectl("patch", FULL, *NS, "--type=merge", "-p", json.dumps(patch))
        wait_until(lambda: _is_asked(cluster.get(deployment, *NS)["spec"], replicas, args))
        return settled(replicas)

    def settled(replicas: int) -> set[str]:
        cluster.kubectl("rollout", "status", deployment, *NS, "--timeout=120s")
        wait_until(lambda: len(names(cluster, decoding)) == replicas, within=90)
        return set(wait_until(lambda: pods if len(pods := ready_pods(cluster, decoding)) == replicas else []))

    first = change(2, args=slow)
    hosts = {"gateway": "infra-sim-inference-gateway.llm-d-sim:8080", "picker": "gaie-sim-epp.llm-d-sim:9090"}
    with traffic(cluster, namespace, **hosts) as seen:
        scaled = change(4, args=slow)
        cluster.kubectl("delete", "pod", min(first), *NS, "--wait=false")  # ended
        cluster.kubectl("delete", "pod", max(first), *NS, "--grace-period=0", "--force")  # killed
        evict(cluster, min(scaled - first))
        replaced = settled(4)
        rolled = change(4, args=[*slow, "--max-num-seqs", "7"])
        last = change(2, args=slow)  # rolled and scaled down at once
    print(f"{sum(seen['served'].values())} requests, {len(seen['served'])} Pods")
    assert seen["wrong"] == []
    assert first < scaled and len(scaled & replaced) == 1 and not replaced & rolled
    assert set(seen["served"]) >= scaled | replaced | rolled | last


def test_no_request_fails_while_gateway_and_picker_are_rolled(cluster: Cluster, installed: str, namespace: str) -> None:
    def roll(deployment: str, labels: str) -> None:
        before = names(cluster, labels)
        cluster.kubectl("rollout", "restart", deployment, *NS)
        cluster.kubectl("rollout", "status", deployment, *NS, "--timeout=120s")
        wait_until(lambda: not before & names(cluster, labels), within=90)

    with traffic(cluster, namespace, gateway="infra-sim-inference-gateway.llm-d-sim:8080") as seen:
        roll("deployment/infra-sim-inference-gateway", "llm-d.ai/gateway-type=standard")
        roll("deployment/gaie-sim-epp", "component=epp")
    print(f"{sum(seen['served'].values())} requests, {len(seen['served'])} Pods")
    assert seen["wrong"] == []
    assert len(seen["served"]) == 2


def _is_asked(spec: dict[str, Any], replicas: int, args: list[str]) -> bool:
    (container,) = spec["template"]["spec"]["containers"]
    return bool(spec["replicas"] == replicas and container["args"][-len(args) :] == args)


@pytest.mark.parametrize("how", [(), ("--grace-period=0", "--force")], ids=["replaced", "killed"])
def test_another_operator_takes_over_and_touches_nothing(
    cluster: Cluster, installed: str, how: tuple[str, ...]
) -> None:
    def scale(replicas: int) -> None:
        change = json.dumps({"spec": {"prefill": {"replicas": replicas}}})
        cluster.kubectl("patch", FULL, *NS, "--type=merge", "-p", change)
        wait_until(lambda: len(ready_pods(cluster, "llm-d.ai/role=prefill")) == replicas, within=90)

    def leader() -> str:
        return cluster.kubectl(
            "get", "lease", "sim-operator.llm-d.io", *SYSTEM, "-o", "jsonpath={.spec.holderIdentity}"
        )

    pods, before = names(cluster, "llm-d.ai/role=decode"), leader()
    cluster.kubectl("delete", "pod", *SYSTEM, "-l", "app.kubernetes.io/component=operator", *how)
    scale(3)
    assert leader() != before
    assert names(cluster, "llm-d.ai/role=decode") == pods
    scale(2)


def test_an_image_that_cannot_be_had_is_told_and_the_old_pods_go_on(cluster: Cluster, installed: str) -> None:
    def patch(image: str) -> None:
        change = json.dumps({"spec": {"decode": {"image": image}}})
        cluster.kubectl("patch", FULL, *NS, "--type=merge", "-p", change)

    def condition(kind: str) -> str:
        path = f'jsonpath={{.status.conditions[?(@.type=="{kind}")]}}'
        return cluster.kubectl("get", FULL, *NS, "-o", path)

    image = cluster.kubectl("get", FULL, *NS, "-o", "jsonpath={.spec.decode.image}")
    before = ready_pods(cluster, "llm-d.ai/role=decode")
    patch("localhost/nowhere:1")
    told = wait_until(lambda: text if "localhost/nowhere:1" in (text := condition("Progressing")) else "", within=120)
    assert json.loads(told)["reason"] in {"ErrImagePull", "ImagePullBackOff"}
    assert json.loads(condition("Ready"))["status"] == "True"
    assert set(before) <= set(ready_pods(cluster, "llm-d.ai/role=decode"))
    patch(image)
    wait_until(lambda: json.loads(condition("Progressing"))["status"] == "False", within=120)
    assert set(before) == set(ready_pods(cluster, "llm-d.ai/role=decode"))


def test_deletion_leaves_nothing(cluster: Cluster, installed: str) -> None:
    cluster.kubectl("delete", FULL, *NS, "--timeout=120s")
    wait_until(lambda: left(cluster) == [], within=120)


def test_the_minimal_stack(cluster: Cluster, minimal: str) -> None:
    head, row = cluster.bash("kubectl get simulatordeployment -n llm-d-sim").splitlines()
    assert head.split() == ["NAME", "REPLICAS", "READY", "AGE"]
    assert row.split()[:3] == ["llm-sim-minimal", "2", "2"]
    cluster.bash("""
        kubectl patch simulatordeployment llm-sim-minimal -n llm-d-sim \\
          -p '{"spec":{"replicas":4}}' --type=merge
    """)
    wait_until(lambda: "llm-sim-minimal   4          4" in cluster.bash("kubectl get simulatordeployment -n llm-d-sim"))
    watched = cluster.bash("timeout 3 kubectl get simulatordeployment -n llm-d-sim -w || [ $? = 124 ]")
    assert "llm-sim-minimal" in watched
    cluster.bash("""
        export KUBE_EDITOR='sed -i s/replicas:.4/replicas:\\ 3/'
        kubectl edit simulatordeployment llm-sim-minimal -n llm-d-sim
    """)
    wait_until(lambda: "llm-sim-minimal   3          3" in cluster.bash("kubectl get simulatordeployment -n llm-d-sim"))
    assert "kind: SimulatorDeployment" in cluster.bash(
        "kubectl get simulatordeployment llm-sim-minimal -n llm-d-sim -o yaml"
    )


def test_load_balancing_follows_a_patch(cluster: Cluster, minimal: str) -> None:
    cluster.bash("""
        kubectl patch simulatordeployment llm-sim-minimal -n llm-d-sim \\
          --type=merge -p '
        {
          "spec": {
            "loadBalancing": {
              "enabled": true,
              "algorithm": "LEAST_REQUEST"
            }
          }
        }'
    """)
    reason = 'jsonpath={.status.conditions[?(@.type=="LoadBalancing")].reason}'
    stack = (minimal, *NS)
    wait_until(lambda: cluster.kubectl("get", *stack, "-o", reason) == "IstioMissing")
    cluster.apply(RULES)  # Istio comes, as far as a rule is concerned
    try:
        wait_until(
            lambda: "gaie-inference-scheduling-proxy-lb" in cluster.bash("kubectl get destinationrule -n llm-d-sim")
        )
        (rule,) = cluster.get("destinationrule", *NS)["items"]
        assert rule["spec"]["host"] == "gaie-inference-scheduling-proxy.llm-d-sim.svc.cluster.local"
        assert rule["spec"]["trafficPolicy"]["loadBalancer"] == {"simple": "LEAST_REQUEST"}
        cluster.kubectl("patch", *stack, "--type=merge", "-p", '{"spec":{"loadBalancing":{"algorithm":"ROUND_ROBIN"}}}')
        wait_until(
            lambda: "ROUND_ROBIN" in cluster.kubectl("get", "destinationrule", *NS, "-o", "jsonpath={.items[*].spec}")
        )
    finally:
        cluster.kubectl("delete", "crd/destinationrules.networking.istio.io", "--timeout=60s")
    wait_until(lambda: cluster.kubectl("get", *stack, "-o", reason) == "IstioMissing")
    cluster.kubectl("delete", *stack, "--timeout=120s")
    wait_until(lambda: left(cluster) == [], within=120)

"""The picker: its Service, Pods, account, flags and ports. Each is broken on purpose, and is the first cause named."""

import copy
from datetime import timedelta

import pytest
from tests.unit.doctor.breaks import (
    Break,
    Document,
    add,
    assert_first_cause,
    change,
    drop,
    pages,
    ports,
    probes,
    says,
    tls,
    unready,
    unseen,
)
from tests.unit.doctor.scene import (
    EXT_PROC,
    NOW,
    PICKER_CLUSTER,
    POOL_CLUSTER,
    SCHED,
    SIM,
    Scene,
    broken,
    eds,
    live_route,
    per_route,
)

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.cluster.facts import Health, Port
from pointsman.doctor.findings import first_cause

SIMPLE = {"tls": {"mode": "SIMPLE"}}


def destination_rule(policy: Document, *, host: str = f"epp.{SIM}.svc.cluster.local", where: str = SIM) -> Document:
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "epp", "namespace": where},
        "spec": {"host": host, "trafficPolicy": policy},
    }


def as_kserve(*flags: str) -> Break:
    """Flags in the command, as KServe's preset has them, and only the configuration in the arguments."""

    def break_(scene: Scene) -> None:
        for spec in specs(scene):
            command = ["/app/epp", *flags, "--pool-namespace", SIM]
            spec["containers"][0] |= {"command": command, "args": ["--config-text", "x"]}

    return break_


def another_container(scene: Scene) -> None:
    for spec in specs(scene):
        spec["containers"][0]["args"] = ["serve"]


def elsewhere(scene: Scene) -> None:
    """A Service without a selector stands for a picker in another namespace, as the operator has it."""
    scene.get("Service", "epp")["spec"]["selector"] = {}
    for kind, name in (("Pod", "epp-1"), ("Deployment", "epp")):
        scene.get(kind, name)["metadata"]["namespace"] = SCHED


def leading(scene: Scene) -> None:
    for spec in specs(scene):
        spec["containers"][0]["args"] = ["--pool-name", "pool", "--pool-namespace", SIM, "--ha-enable-leader-election"]


def specs(scene: Scene) -> list[Document]:
    return [scene.get("Pod", "epp-1")["spec"], scene.get("Deployment", "epp")["spec"]["template"]["spec"]]


def second(scene: Scene) -> None:
    """Add another Pod of the picker."""
    more = copy.deepcopy(scene.get("Pod", "epp-1"))
    more["metadata"]["name"], more["status"]["podIP"] = "epp-2", "10.244.0.10"
    scene.add(more)


FAULTS = [
    pytest.param(
        (drop("Service", "epp"), says("InferencePool", "pool", "ResolvedRefs", "InvalidExtensionRef")),
        "the picker's Service is there",
        f"no {SIM}/epp",
        "kubectl get services",
        id="no picker Service",
    ),
    pytest.param(
        (
            change("Service", "epp", "spec", "type", to="ExternalName"),
            change("Service", "epp", "spec", "externalName", to=f"gaie.{SCHED}.svc.cluster.local"),
        ),
        "the picker's Service is there",
        "ExternalName",
        "EndpointSlice",
        id="ExternalName",
    ),
    pytest.param(
        (
            change("InferencePool", "pool", "spec", "endpointPickerRef", "port", "number", to=9999),
            pages(
                routes=[
                    live_route(
                        f"{SCHED}.llm.0",
                        POOL_CLUSTER,
                        {EXT_PROC: per_route(cluster=PICKER_CLUSTER.replace("9002", "9999"))},
                    )
                ]
            ),
        ),
        "the picker's Service has the port",
        "port 9999",
        "",
        id="port that the Service does not have",
    ),
    pytest.param(
        (
            change("Service", "epp", "spec", "ports", 0, to={"name": "http", "port": 9002, "targetPort": 9002}),
            pages(clusters=[eds(PICKER_CLUSTER), eds(POOL_CLUSTER, follows=True)]),
            probes(status=500),
        ),
        "the picker's port is known to speak HTTP/2",
        "named http",
        '"value":"http2"',
        id="port named http",
    ),
    pytest.param(
        (change("Service", "epp", "spec", "ports", 0, to={"name": "tcp-grpc", "port": 9002}),),
        "the picker's port is known to speak HTTP/2",
        "named tcp-grpc",
        '"value":"http2"',
        id="port named tcp-grpc",
    ),
    pytest.param(
        (change("Service", "epp", "spec", "ports", 0, "targetPort", to="grpcs"),),
        "the Service leads to the picker's port",
        "the name grpcs, which no container has",
        '"value":9002',
        id="wrong port name",
    ),
    pytest.param(
        (change("Service", "epp", "spec", "ports", 0, "targetPort", to=8100),),
        "the Service leads to the picker's port",
        "is 8100; the picker listens on 9002",
        '"value":9002',
        id="wrong target port",
    ),
    pytest.param(
        (change("Service", "epp", "spec", "selector", "app", to="eep"),),
        "the picker's Pods are ready",
        "app=eep",
        '"app":"epp"',
        id="picker selector with a typo",
    ),
    pytest.param(
        (
            unready("epp-1", "CrashLoopBackOff"),
            change("EndpointSlice", "epp-1", "endpoints", 0, "conditions", "ready", to=False),
        ),
        "the picker's Pods are ready",
        "CrashLoopBackOff",
        "kubectl logs",
        id="picker down",
    ),
    pytest.param(
        (drop("Pod", "epp-1"), change("Deployment", "epp", "spec", "replicas", to=0)),
        "the picker's Pods are ready",
        "0 replicas",
        "kubectl scale deployment",
        id="picker scaled to zero",
    ),
    pytest.param(
        (
            drop("Pod", "epp-1"),
            change(
                "Deployment",
                "epp",
                "status",
                "conditions",
                to=[{"type": "ReplicaFailure", "status": "True", "message": 'serviceaccount "epp" not found'}],
            ),
        ),
        "the picker's Pods are ready",
        'serviceaccount "epp" not found',
        "kubectl describe deployment",
        id="account missing",
    ),
    pytest.param(
        (lambda s: setattr(s, "refused", (("watch", "pods"),)), unready("epp-1", "not ready")),
        "the picker's account may follow Pods and pools",
        f"watch pods in {SIM}",
        '"resources":["pods"],"verbs":["list","watch"]',
        id="RBAC missing one verb",
    ),
    pytest.param(
        (lambda s: setattr(s, "refused", (("list", "inferencepools"),)),),
        "the picker's account may follow Pods and pools",
        "list inferencepools",
        '"apiGroups":["inference.networking.k8s.io"],"resources":["inferencepools"]',
        id="RBAC missing the pool",
    ),
    pytest.param(
        (
            change("Pod", "epp-1", "spec", "containers", 0, "args", 1, to="gaie-sim"),
            change(
                "Deployment", "epp", "spec", "template", "spec", "containers", 0, "args", to=["--pool-name", "gaie-sim"]
            ),
        ),
        "the picker follows this pool",
        "--pool-name=gaie-sim instead of pool",
        '"value":"pool"',
        id="picker of another pool",
    ),
    pytest.param(
        (drop("EndpointSlice", "epp-1"),),
        "the picker's Service has endpoints",
        "no EndpointSlice",
        "kubectl get endpointslices",
        id="no endpoints",
    ),
    pytest.param(
        (ports(Port(address="10.244.0.9:9002", reached=False, why="connection refused: nobody listens there")),),
        "the picker takes connections",
        "refused",
        "kubectl logs",
        id="picker dead but Ready",
    ),
    pytest.param(
        (ports(Port(address="10.244.0.9:9002", reached=True, http2=False, why="silence for 3 s: it hangs")),),
        "the picker's port settles on HTTP/2",
        "it hangs",
        "kubectl get pod",
        id="picker hangs",
    ),
    pytest.param(
        (lambda s: s.tls(),),
        "gateway and picker agree on TLS",
        "serves TLS, the gateway speaks plaintext",
        '"mode":"SIMPLE"',
        id="TLS picker without a rule",
    ),
    pytest.param(
        (lambda s: s.tls(), unseen),
        "gateway and picker agree on TLS",
        "serves TLS",
        "DestinationRule",
        id="TLS picker without a rule, gateway not seen",
    ),
    pytest.param(
        (
            pages(clusters=[eds(PICKER_CLUSTER, http2=True, tls=True), eds(POOL_CLUSTER, follows=True)]),
            add(
                {
                    "apiVersion": "networking.istio.io/v1",
                    "kind": "DestinationRule",
                    "metadata": {"name": "epp", "namespace": SIM},
                    "spec": {"host": f"epp.{SIM}.svc.cluster.local", "trafficPolicy": {"tls": {"mode": "SIMPLE"}}},
                }
            ),
        ),
        "gateway and picker agree on TLS",
        "the gateway speaks TLS",
        '"path":"/spec/trafficPolicy/tls"',
        id="TLS rule, plaintext picker",
    ),
    pytest.param(
        (tls(alpn=""),), "the picker's port settles on HTTP/2", "chose nothing", "--secure-serving=false", id="no ALPN"
    ),
    pytest.param(
        (tls(alpn=""), add(destination_rule(SIMPLE))),
        "the picker's port settles on HTTP/2",
        "chose nothing",
        "--secure-serving=false\"]}]' && kubectl patch destinationrules.networking.istio.io -n llm-d-sim epp",
        id="no ALPN, and a rule for TLS",
    ),
    pytest.param(
        (as_kserve("--pool-name", "pool"), tls(alpn="")),
        "the picker's port settles on HTTP/2",
        "chose nothing",
        '"value":["--config-text","x","--secure-serving=false"]',
        id="no ALPN, flags in the command",
    ),
    pytest.param(
        (another_container, tls(alpn="")),
        "the picker's port settles on HTTP/2",
        "chose nothing",
        "kubectl edit deployment",
        id="no ALPN, a picker of another make",
    ),
    pytest.param(
        (
            pages(clusters=[eds(PICKER_CLUSTER, http2=True, tls=True), eds(POOL_CLUSTER, follows=True)]),
            add(destination_rule({"portLevelSettings": [{"port": {"number": 9002}, **SIMPLE}]})),
        ),
        "gateway and picker agree on TLS",
        "the gateway speaks TLS",
        '"path":"/spec/trafficPolicy/portLevelSettings/0/tls"',
        id="TLS rule for the port, plaintext picker",
    ),
    pytest.param(
        (
            pages(clusters=[eds(PICKER_CLUSTER, http2=True, tls=True), eds(POOL_CLUSTER, follows=True)]),
            add(
                destination_rule(SIMPLE, host="*.svc.cluster.local"), destination_rule(SIMPLE, host="epp", where=SCHED)
            ),
        ),
        "gateway and picker agree on TLS",
        f"DestinationRule {SIM}/epp says so",
        f'"host":"epp.{SIM}.svc.cluster.local","trafficPolicy":{{"tls":{{"mode":"DISABLE"}}',
        id="TLS rule for all hosts, plaintext picker",
    ),
    pytest.param(
        (as_kserve("--pool-name", "other"),),
        "the picker follows this pool",
        "--pool-name=other instead of pool",
        '"path":"/spec/template/spec/containers/0/command/2","value":"pool"',
        id="picker of another pool, flags in the command",
    ),
    pytest.param(
        (
            as_kserve("--pool-name", "pool"),
            lambda s: setattr(s, "refused", (("list", "inferencepools"),)),
        ),
        "the picker's account may follow Pods and pools",
        "list inferencepools",
        '"resources":["inferencepools"]',
        id="RBAC missing the pool, flags in the command",
    ),
    pytest.param(
        (elsewhere, lambda s: setattr(s, "refused", (("watch", "pods"),))),
        "the picker's account may follow Pods and pools",
        f"watch pods in {SIM}",
        f'"subjects":[{{"kind":"ServiceAccount","namespace":"{SCHED}","name":"epp"}}]',
        id="RBAC of a picker in another namespace",
    ),
    pytest.param(
        (tls(alpn="http/1.1"),),
        "the picker's port settles on HTTP/2",
        "chose http/1.1",
        "--secure-serving=false",
        id="ALPN of HTTP/1.1",
    ),
    pytest.param(
        (tls(ends=NOW - timedelta(days=1)),),
        "the picker's certificate is valid today",
        "2026-11-15",
        "kubectl rollout restart",
        id="expired certificate",
    ),
    pytest.param(
        (tls(starts=NOW + timedelta(days=1)),),
        "the picker's certificate is valid today",
        "2026-11-17",
        "kubectl rollout restart",
        id="certificate of tomorrow",
    ),
    pytest.param(
        (lambda s: setattr(s, "health", [Health(address="10.244.0.9:9003", status="NOT_SERVING")]),),
        "the picker's gRPC health says SERVING",
        "NOT_SERVING",
        "kubectl logs",
        id="health says no",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)


def test_several_pickers_are_well_when_one_leads() -> None:
    assert first_cause(examine(broken(second, leading).cluster())) is None
    found = first_cause(examine(broken(second).cluster()))
    assert found is not None
    assert (found.verdict, found.check) == ("warning", "the picker's Pods are ready")
    assert "--ha-enable-leader-election" in found.cause
    assert found.fix == f"kubectl scale deployment -n {SIM} epp --replicas=1"


def test_rights_to_lead_are_about_the_lease_that_the_role_names() -> None:
    """Roles of least privilege name the lease: a question about any lease is answered with no."""
    rights = {str(one): one.names for one in broken(elsewhere, leading).cluster().rights if one.resource == "leases"}
    lease = f"epp-{SIM}-pool"
    names = (f"{lease}.llm-d.ai", f"{lease}.gateway-api-inference-extension.sigs.k8s.io")
    where = f"leases.coordination.k8s.io in {SIM}"
    assert rights == {f"create {where}": (), f"get {where}": names, f"update {where}": names}


def test_the_fix_gives_no_more_than_a_picker_needs() -> None:
    scene = broken(leading, lambda s: setattr(s, "refused", (("create", "leases"), ("list", "pods"))))
    found = first_cause(examine(scene.cluster()))
    assert found is not None
    assert '"resources":["pods"],"verbs":["list","watch"]}' in found.fix
    assert '"resources":["leases"],"verbs":["create"]}' in found.fix
    assert f'"verbs":["get","update"],"resourceNames":["epp-{SIM}-pool.llm-d.ai"' in found.fix

"""The picker: its Service, Pods, account, flags and ports. Each is broken on purpose, and is the first cause named."""

from datetime import timedelta

import pytest
from tests.unit.doctor.breaks import (
    Break,
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
from tests.unit.doctor.scene import EXT_PROC, NOW, PICKER_CLUSTER, POOL_CLUSTER, SCHED, SIM, eds, live_route, per_route

from pointsman.doctor.cluster.facts import Health, Port

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
        "--verb=watch --resource=pods",
        id="RBAC missing one verb",
    ),
    pytest.param(
        (lambda s: setattr(s, "refused", (("list", "inferencepools"),)),),
        "the picker's account may follow Pods and pools",
        "list inferencepools",
        "inferencepools.inference.networking.k8s.io",
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

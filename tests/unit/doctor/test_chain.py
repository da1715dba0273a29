"""A cluster that is well, and the whole chain of checks over it."""

import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from tests.unit.doctor.breaks import (
    REPLACE,
    Break,
    add,
    by_service,
    change,
    manual_cluster,
    own_route_patch,
    pages,
    patch,
    says,
    tls,
    unready,
    unseen,
)
from tests.unit.doctor.scene import (
    DUPLEX,
    EXT_PROC,
    GATEWAY,
    NOW,
    PICKER_CLUSTER,
    POOL_CLUSTER,
    SCHED,
    SIM,
    Scene,
    broken,
    deployment,
    eds,
    envoyfilter,
    everything,
    listener,
    live_route,
    native_filter,
    per_route,
    pod,
)

from pointsman.doctor.cluster.chain import PARTS, examine
from pointsman.doctor.cluster.facts import Counts, Focus, Health, Probe
from pointsman.doctor.cluster.path import ANNOTATION
from pointsman.doctor.findings import first_cause
from pointsman.doctor.report import exit_code, lines

ORIGINAL_DST = {"name": POOL_CLUSTER, "type": "ORIGINAL_DST", "original_dst_lb_config": {"use_http_header": True}}


def test_a_cluster_that_is_well() -> None:
    findings = examine(Scene().cluster())
    assert [one for one in findings if one.verdict in {"failed", "warning"}] == []
    assert (first_cause(findings), exit_code(findings)) == (None, 0)
    assert {one.part for one in findings} == set(PARTS)
    told = list(lines(findings))
    assert (told[0], told[-1]) == ("cluster", "all is well")


def through_a_patch(scene: Scene) -> None:
    """Istio's way with the picker in the gateway's namespace, which an EnvoyFilter names on exactly one route."""
    cluster = f"outbound|9002||gaie-epp.{SCHED}.svc.cluster.local"
    for kind, name in (("Service", "epp"), ("Pod", "epp-1"), ("Deployment", "epp"), ("EndpointSlice", "epp-1")):
        moved = scene.get(kind, name)
        moved["metadata"]["namespace"] = SCHED
        if kind in {"Service", "Deployment"}:
            moved["metadata"]["name"] = "gaie-epp"
    scene.get("EndpointSlice", "epp-1")["metadata"]["labels"] = {"kubernetes.io/service-name": "gaie-epp"}
    says("InferencePool", "pool", "ResolvedRefs", "InvalidExtensionRef")(scene)
    scene.add(envoyfilter(own_route_patch(DUPLEX, cluster=cluster)))
    assert scene.pages is not None
    scene.pages.routes = [live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {EXT_PROC: per_route(cluster=cluster)})]
    scene.pages.clusters[0] = eds(cluster, http2=True)
    scene.pages.members[cluster] = ["10.244.0.9:9002"]


def without_the_extension(scene: Scene) -> None:
    """A filter of one's own name, off but for one route, and a Service's cluster that was made to follow the pick."""
    by_service(scene)
    cluster = f"outbound|8200||sim.{SIM}.svc.cluster.local"
    off = {**native_filter(), "name": "llm-d.ext-proc", "disabled": True}
    entry = {"llm-d.ext-proc": per_route()}
    match = {"routeConfiguration": {"vhost": {"route": {"name": f"{SCHED}.llm.0"}}}}
    scene.add(
        envoyfilter(
            patch("HTTP_FILTER", "INSERT_BEFORE", off),
            patch("HTTP_ROUTE", "MERGE", {"typed_per_filter_config": entry}, **match),
            patch("CLUSTER", "MERGE", {"load_balancing_policy": {}}),
        )
    )
    assert scene.pages is not None
    scene.pages.listeners = [listener(ext_proc=[off])]
    scene.pages.routes = [live_route(f"{SCHED}.llm.0", cluster, entry)]
    scene.pages.clusters = [eds(PICKER_CLUSTER, http2=True), eds(cluster, follows=True)]
    scene.counts, scene.probes = Scene().counts, Scene().probes


def by_addresses(scene: Scene) -> None:
    """A Service without a selector in the pool's namespace, with the addresses of a picker in another one."""
    scene.get("Service", "epp")["spec"]["selector"] = {}
    for kind, name in (("Pod", "epp-1"), ("Deployment", "epp")):
        scene.get(kind, name)["metadata"]["namespace"] = SCHED


def repaired_cors(scene: Scene) -> None:
    """CORS on the rule, and an EnvoyFilter that puts the picker back."""
    scene.get("HTTPRoute", "llm")["spec"]["rules"][0]["filters"] = [{"type": "CORS", "cors": {}}]
    scene.add(envoyfilter(own_route_patch(DUPLEX)))


@pytest.mark.parametrize("way", [through_a_patch, without_the_extension, by_addresses, repaired_cors])
def test_other_ways_that_work_are_well(way: Break) -> None:
    findings = examine(broken(way).cluster())
    assert first_cause(findings) is None, first_cause(findings)


def another_program(scene: Scene) -> None:
    """A picker that is not llm-d's: its own port, no flags, no health of gRPC."""
    for kind in ("Pod", "Deployment"):
        holder = scene.get(kind, "epp-1" if kind == "Pod" else "epp")["spec"]
        spec = holder if kind == "Pod" else holder["template"]["spec"]
        spec["containers"] = [{"name": "c", "ports": [{"name": "ext-proc", "containerPort": 50051}]}]
    scene.get("Service", "epp")["spec"]["ports"][0]["targetPort"] = "ext-proc"
    scene.health = [Health(address="10.244.0.9:9003", status="", why="connection refused: nobody listens there")]


def test_a_picker_of_another_make_is_well() -> None:
    findings = examine(broken(another_program).cluster())
    assert first_cause(findings) is None, first_cause(findings)


def test_what_is_only_doubtful_is_a_warning() -> None:
    annotated = broken(change("HTTPRoute", "llm", "metadata", "annotations", to={ANNOTATION: "x"}))
    unlooked = broken(unseen)
    literal = broken(lambda s: s.add(envoyfilter(own_route_patch(DUPLEX, cluster="epp-cluster"), manual_cluster())))
    expired = broken(tls(ends=NOW - timedelta(days=1), verifies=False))
    half_ready = broken(unready("sim-1", "CrashLoopBackOff"))
    header = broken(pages(clusters=[eds(PICKER_CLUSTER, http2=True), ORIGINAL_DST]))
    for scene, check in (
        (annotated, "nobody relies on the annotation ext-proc-override"),
        (unlooked, "the gateway's Envoy can be asked"),
        (literal, "addresses in EnvoyFilters are live"),
        (expired, "the picker's certificate is valid today"),
        (half_ready, "the selected Pods are ready"),
        (header, "the cluster behind the route follows the pick"),
    ):
        findings = examine(scene.cluster())
        cause = first_cause(findings)
        assert cause is not None
        assert (cause.check, cause.verdict, exit_code(findings)) == (check, "warning", 3), cause


def test_without_the_picks_the_proof_is_that_chance_would_not_do_it() -> None:
    scene = Scene()
    scene.probes = [Probe(status=200, answered="sim-1") for _ in range(4)]
    findings = {one.check: one for one in examine(scene.cluster())}
    assert findings["the answer comes from the picked Pod"].verdict == "ok"
    assert "by chance 1 in 27" in findings["the answer comes from the picked Pod"].evidence
    scene.probes = [Probe(status=200, answered=f"sim-{n}") for n in (1, 2, 3, 1)]
    cause = first_cause(examine(scene.cluster()))
    assert cause is not None
    assert (cause.check, cause.evidence.startswith("sim-1: 2, sim-2: 1")) == (
        "the answer comes from the picked Pod",
        True,
    )


def test_counters_that_are_hidden_are_said_to_be() -> None:
    scene = Scene()
    counted = {PICKER_CLUSTER: 4}
    scene.changes = {
        "after": Counts(asked={}, requests=counted),
        "before": Counts(asked={}, requests={PICKER_CLUSTER: 0}),
    }
    found = {one.check: one for one in examine(scene.cluster())}["the gateway's counters of the probe"]
    assert (found.verdict, "hides its ext_proc counters" in found.evidence, "+4" in found.evidence) == (
        "ok",
        True,
        True,
    )
    scene.changes["after"] = Counts(asked={}, requests={PICKER_CLUSTER: 0})
    cause = first_cause(examine(scene.cluster()))
    assert cause is not None
    assert (cause.check, cause.verdict) == ("the gateway's counters of the probe", "failed")


def spots(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a document: what it is in, and under which name or number."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(pairs):
        yield document, key
        yield from spots(value)


KEPT = {"metadata", "name", "namespace", "kind", "apiVersion"}


def test_no_object_is_too_odd() -> None:
    """Whatever is missing or of another type somewhere: there are findings, never an error."""
    made = envoyfilter(REPLACE, manual_cluster(), own_route_patch(DUPLEX))
    count = sum(1 for one in (*everything(), made) for _ in spots(one))
    rng = random.Random(7)
    for number in rng.sample(range(count), 200):
        scene = broken(add(made))
        holder, key = next(islice((spot for one in scene.documents for spot in spots(one)), number, None))
        if key in KEPT:
            continue
        value: Any = rng.choice([None, "x", [], {}, 3])
        if value is None and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = value
        assert len(examine(scene.cluster())) == sum(map(len, PARTS.values()))


def an_envoy_of_its_own(scene: Scene) -> None:
    """No Gateway API at all: a Deployment of Envoy with its own configuration, as a stack's standard gateway is."""
    kinds = {"Gateway", "GatewayClass", "HTTPRoute", "ReferenceGrant"}
    groups = ("gateway.networking.k8s.io", "inference.networking.x-k8s.io")
    scene.documents = [
        one for one in scene.documents if one["kind"] not in kinds and not str(one["metadata"]["name"]).endswith(groups)
    ]
    scene.drop("Pod", f"{GATEWAY}-istio-1")
    labels = {"component": "gateway"}
    envoy = pod(f"{GATEWAY}-1", SIM, labels, address="10.244.0.20", ports={"http": 80})
    scene.add(envoy, deployment(GATEWAY, SIM, labels, envoy))
    scene.changes = {"focus": Focus()}
    assert scene.pages is not None
    scene.pages.routes = [live_route("", "model-servers", {EXT_PROC: per_route(cluster="pickers")})]
    scene.pages.clusters = [eds("pickers", http2=True), eds("model-servers", follows=True)]
    scene.pages.members = {
        "pickers": ["10.244.0.9:9002"],
        "model-servers": [f"10.244.0.{n}:8200" for n in (1, 2, 3)],
    }


def test_an_envoy_without_a_gateway_is_looked_at_as_well() -> None:
    scene = broken(an_envoy_of_its_own)
    findings = {one.check: one for one in examine(scene.cluster())}
    assert first_cause(list(findings.values())) is None, first_cause(list(findings.values()))
    assert "an Envoy of its own" in findings["the Gateway is there"].evidence
    for check in ("the backend selects Pods", "the picker takes connections", "the route's modes are right"):
        assert findings[check].verdict == "ok", findings[check]
    assert scene.pages is not None
    scene.pages.clusters[1] = eds("model-servers")
    cause = first_cause(examine(scene.cluster()))
    assert cause is not None
    assert cause.check == "the cluster behind the route follows the pick"

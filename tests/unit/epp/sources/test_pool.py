"""Watch events as an API server sends them, and the endpoints that follow."""

import copy
import itertools
import random
from typing import Any, Literal

import pytest

from pointsman.epp.request.objectives import Objective, Objectives
from pointsman.epp.request.rewrites import Rewrite, RewriteRule, Target
from pointsman.epp.sources.pool import OLD_GROUP, Cluster, Kind, PoolSpec, read_pool
from pointsman.epp.sources.selector import parse_selector

Event = tuple[Kind, Literal["ADDED", "MODIFIED", "DELETED"], dict[str, Any]]

POOL: dict[str, Any] = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "vllm", "namespace": "llm", "generation": 1},
    "spec": {
        "selector": {"matchLabels": {"app": "vllm"}},
        "targetPorts": [{"number": 8000}, {"number": 8001}],
        "endpointPickerRef": {"name": "epp", "port": {"number": 9002}, "failureMode": "FailClose"},
    },
}
OLD_POOL: dict[str, Any] = {
    "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
    "kind": "InferencePool",
    "metadata": {"name": "vllm", "namespace": "llm"},
    "spec": {"selector": {"app": "vllm"}, "targetPortNumber": 8000, "extensionRef": {"name": "epp"}},
}


def pod(
    name: str, *, address: str = "10.0.0.1", ready: str = "True", app: str = "vllm", **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "llm", "labels": {"app": app}, **metadata},
        "status": {
            "podIP": address,
            "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}],
        },
    }


def objective(name: str, priority: int | None, *, group: str = "llm-d.ai", pool: str = "vllm") -> dict[str, Any]:
    spec: dict[str, Any] = {"poolRef": {"name": pool}}
    if priority is not None:
        spec["priority"] = priority
    return {"apiVersion": f"{group}/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": name}, "spec": spec}


def rewrite(name: str, *, group: str = "llm-d.ai", target: str = "t") -> dict[str, Any]:
    rules = [{"matches": [{"model": {"value": "m"}}], "targets": [{"modelRewrite": target, "weight": 3}]}]
    return {
        "apiVersion": f"{group}/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"poolRef": {"group": "inference.networking.k8s.io", "name": "vllm"}, "rules": rules},
    }


def cluster(*events: Event) -> Cluster:
    made = Cluster(pool="vllm")
    for event in events:
        made.apply(*event)
    return made


def targets(made: Cluster) -> list[str]:
    return [endpoint.target for endpoint in made.endpoints()]


def test_a_ready_pod_is_an_endpoint_per_port() -> None:
    made = cluster(("InferencePool", "ADDED", POOL), ("Pod", "ADDED", pod("a")))
    first, second = made.endpoints()
    assert (first.name, first.namespace, first.target) == ("a-rank-0", "llm", "10.0.0.1:8000")
    assert (second.name, second.target, second.labels) == ("a-rank-1", "10.0.0.1:8001", {"app": "vllm"})


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pod("a", ready="False"), id="not ready"),
        pytest.param(pod("a", app="other"), id="another label"),
        pytest.param(pod("a", address=""), id="no address yet"),
        pytest.param(pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), id="being deleted"),
        pytest.param({"metadata": {"name": "a"}}, id="nothing known"),
        pytest.param({"metadata": {"name": "a", "labels": []}, "status": "?"}, id="not shaped as a pod"),
    ],
)
def test_who_is_no_endpoint(one: dict[str, Any]) -> None:
    assert targets(cluster(("InferencePool", "ADDED", POOL), ("Pod", "ADDED", one))) == []


def test_a_pod_that_stops_being_ready_leaves() -> None:
    events: list[Event] = [("InferencePool", "ADDED", POOL), ("Pod", "ADDED", pod("a"))]
    assert targets(cluster(*events, ("Pod", "MODIFIED", pod("a", ready="False")))) == []
    assert targets(cluster(*events, ("Pod", "DELETED", pod("a")))) == []


@pytest.mark.parametrize("key", ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"])
def test_active_ports_restrict(key: str) -> None:
    one = pod("a", annotations={key: f"8001, 9999, x, ², {'9' * 5000}"})
    made = cluster(("InferencePool", "ADDED", POOL), ("Pod", "ADDED", one))
    assert [(endpoint.name, endpoint.port) for endpoint in made.endpoints()] == [("a-rank-1", 8001)]


def test_a_pod_may_say_that_no_port_is_in_use() -> None:
    one = pod("a", annotations={"llm-d.ai/active-ports": ""})
    assert cluster(("InferencePool", "ADDED", POOL), ("Pod", "ADDED", one)).endpoints() == ()


def test_a_pool_of_the_old_version() -> None:
    spec = read_pool(OLD_POOL)
    assert spec is not None
    assert spec.ports == (8000,)
    assert spec.selector.matches({"app": "vllm"})


def test_an_ipv6_pod() -> None:
    made = cluster(("InferencePool", "ADDED", OLD_POOL), ("Pod", "ADDED", pod("a", address="fd00::7")))
    assert targets(made) == ["[fd00::7]:8000"]


def test_a_changed_pool_changes_all_endpoints_and_a_deleted_one_removes_them() -> None:
    changed = copy.deepcopy(POOL)
    changed["spec"]["targetPorts"] = [{"number": 9000}]
    made = cluster(("InferencePool", "ADDED", POOL), ("Pod", "ADDED", pod("a")), ("InferencePool", "MODIFIED", changed))
    assert targets(made) == ["10.0.0.1:9000"]
    made.apply("InferencePool", "DELETED", changed)
    assert (targets(made), made.spec) == ([], None)
    made.apply("InferencePool", "ADDED", POOL)
    assert len(targets(made)) == 2


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"selector": {"matchLabels": {}}, "targetPorts": [{"number": 8000}]}, id="no labels"),
        pytest.param({"selector": {"matchLabels": {"a": "b"}}, "targetPorts": []}, id="no ports"),
        pytest.param({"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": "http"}, 7]}, id="bad ports"),
        pytest.param("nonsense", id="no spec"),
    ],
)
def test_a_pool_that_says_nothing_usable_is_none(spec: Any) -> None:
    assert read_pool({"metadata": {"name": "vllm"}, "spec": spec}) is None


def test_other_pools_are_not_ours() -> None:
    other = {**POOL, "metadata": {"name": "other"}}
    assert cluster(("InferencePool", "ADDED", other)).spec is None


def test_any_order_of_events_comes_to_the_same() -> None:
    events: list[Event] = [
        ("InferencePool", "ADDED", POOL),
        ("Pod", "ADDED", pod("b", address="10.0.0.2")),
        ("Pod", "ADDED", pod("a")),
        ("InferenceObjective", "ADDED", objective("high", 5)),
    ]
    outcomes = {
        (tuple(targets(made)), made.objectives())
        for order in itertools.permutations(events)
        for made in [cluster(*order)]
    }
    assert len(outcomes) == 1


def test_a_list_after_a_gap_says_the_same_as_the_events() -> None:
    draw, made = random.Random(3), cluster(("InferencePool", "ADDED", POOL))
    alive: dict[str, dict[str, Any]] = {}
    for _ in range(300):
        name = f"pod-{draw.randrange(8)}"
        if draw.random() < 0.3 and name in alive:
            made.apply("Pod", "DELETED", alive.pop(name))
        else:
            ready = draw.choice(("True", "False"))
            alive[name] = pod(name, address=f"10.0.1.{name[-1]}", ready=ready)
            made.apply("Pod", draw.choice(("ADDED", "MODIFIED")), alive[name])
        listed = cluster(("InferencePool", "ADDED", POOL))
        listed.replace("Pod", alive.values())
        assert listed.endpoints() == made.endpoints()


def test_objectives_of_both_groups_and_of_this_pool_only() -> None:
    made = cluster(
        ("InferenceObjective", "ADDED", objective("high", 5)),
        ("InferenceObjective", "ADDED", objective("high", 1, group=OLD_GROUP)),
        ("InferenceObjective", "ADDED", objective("old", -1, group=OLD_GROUP)),
        ("InferenceObjective", "ADDED", objective("plain", None)),
        ("InferenceObjective", "ADDED", objective("foreign", 9, pool="other")),
    )
    assert set(made.objectives()) == {
        Objective(name="high", priority=5),
        Objective(name="old", priority=-1),
        Objective(name="plain", priority=0),
    }
    made.replace("InferenceObjective", [])  # today's CRD went away
    assert {(one.name, one.priority) for one in made.objectives()} == {("high", 1), ("old", -1)}
    store = Objectives()
    store.replace(made.objectives())
    assert (store.priority("high"), store.priority("unknown"), len(store)) == (1, 0, 2)


def test_rewrites_become_rules() -> None:
    made = cluster(
        ("InferenceModelRewrite", "ADDED", rewrite("r", group=OLD_GROUP, target="old")),
        ("InferenceModelRewrite", "ADDED", rewrite("r")),
    )
    rules = (RewriteRule(models=("m",), targets=(Target(model="t", weight=3),)),)
    assert made.rewrites() == (Rewrite(name="r", created="2026-01-01T00:00:00Z", rules=rules),)
    made.apply("InferenceModelRewrite", "DELETED", rewrite("r"))
    assert [one.rules[0].targets[0].model for one in made.rewrites()] == ["old"]


def test_a_rule_that_we_do_not_understand_matches_nothing() -> None:
    strange = rewrite("r")
    strange["spec"]["rules"][0]["matches"] = [{"model": {"type": "Regex", "value": ".*"}}]
    assert cluster(("InferenceModelRewrite", "ADDED", strange)).rewrites()[0].rules == ()


def test_standalone_needs_no_pool() -> None:
    spec = PoolSpec(selector=parse_selector("app in (vllm)", where="flag"), ports=(8000,))
    made = Cluster(standalone=spec)
    made.apply("Pod", "ADDED", pod("a"))
    made.apply("InferencePool", "ADDED", {**POOL, "metadata": {"name": ""}})
    made.apply("InferenceObjective", "ADDED", objective("high", 5, pool="any"))
    assert targets(made) == ["10.0.0.1:8000"]
    assert made.objectives() == (Objective(name="high", priority=5),)

"""The pool, and the Pods that it selects. Each is broken on purpose, and is the first cause named."""

import pytest
from tests.unit.doctor.breaks import Break, assert_first_cause, change, probes, unready
from tests.unit.doctor.scene import SIM, Scene, broken

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.findings import first_cause


def labelled_alike(scene: Scene) -> None:
    """The pool selects a label that the picker has, too."""
    for one in scene.documents:
        if one["kind"] == "Pod" and one["metadata"]["namespace"] == SIM:
            one["metadata"]["labels"]["stack"] = "llm"
    scene.get("InferencePool", "pool")["spec"]["selector"]["matchLabels"] = {"stack": "llm"}


def behind_a_sidecar(scene: Scene) -> None:
    """Decode servers as KServe has them: a sidecar takes the pool's port, the server another one."""
    for n in (1, 2, 3):
        spec = scene.get("Pod", f"sim-{n}")["spec"]
        spec["containers"][0]["ports"] = [{"containerPort": 8001}]
        sidecar = {"name": "llm-d-routing-sidecar", "restartPolicy": "Always", "ports": [{"containerPort": 8200}]}
        spec["initContainers"] = [{"name": "once", "ports": [{"containerPort": 1}]}, sidecar]


FAULTS = [
    pytest.param(
        (change("InferencePool", "pool", "spec", "selector", "matchLabels", "app", to="sym"),),
        "the backend selects Pods",
        "app=sym",
        '"app":"sim"',
        id="selector with a typo",
    ),
    pytest.param(
        (change("InferencePool", "pool", "spec", "selector", "matchLabels", to={"ap": "sim"}),),
        "the backend selects Pods",
        "ap=sim",
        '"ap":null',
        id="selector with a wrong label",
    ),
    pytest.param(
        (
            unready("sim-1", "CrashLoopBackOff"),
            unready("sim-2", "CrashLoopBackOff"),
            unready("sim-3", "CrashLoopBackOff"),
        ),
        "the selected Pods are ready",
        "0 of 3; sim-1: CrashLoopBackOff",
        "kubectl describe pod",
        id="no server is ready",
    ),
    pytest.param(
        (change("InferencePool", "pool", "spec", "targetPorts", 0, "number", to=8000),),
        "the Pods serve on the pool's port",
        "8000, the Pods declare 8200",
        '"number":8200',
        id="pool port that nobody serves",
    ),
    pytest.param(
        (labelled_alike, probes(status=503, picked="epp-1")),
        "the Pods serve on the pool's port",
        "stack=llm selects epp-1 too, which does not declare 8200",
        '"matchLabels":{"app":"sim","stack":"llm"}',
        id="selector that takes the picker for a server",
    ),
    pytest.param(
        (change("InferencePool", "pool", "metadata", "generation", to=3),),
        "the pool's status is current",
        "generation 1, the spec is 3",
        "istiod",
        id="stale pool status",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)


def test_a_sidecar_serves_on_the_pool_s_port() -> None:
    assert first_cause(examine(broken(behind_a_sidecar).cluster())) is None

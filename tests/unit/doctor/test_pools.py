"""The pool, and the Pods that it selects. Each is broken on purpose, and is the first cause named."""

import pytest
from tests.unit.doctor.breaks import Break, assert_first_cause, change, unready

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

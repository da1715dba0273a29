"""Who may write. The election between real replicas is in tests/cluster; here are the decisions and the clock."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.core.kinds import Key
from pointsman.kube.lease import LeaseTerms, Step, claimed, decide

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
KEY = Key("a", "leader")


def lease(holder: str, *, duration: int = 15, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "leader", "namespace": "a", "resourceVersion": "5"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration, **spec},
    }


@pytest.mark.parametrize(
    ("document", "unchanged_for", "expected"),
    [
        pytest.param(None, 0, "create", id="none"),
        pytest.param(lease("me"), 999, "renew", id="ours-even-if-old"),
        pytest.param(lease("you"), 14.9, "wait", id="theirs"),
        pytest.param(lease("you"), 15.1, "take", id="theirs-and-not-renewed-for-as-long-as-we-watched"),
        pytest.param(lease(""), 0, "take", id="given-back"),
        pytest.param(
            lease("you", renewTime="1970-01-01T00:00:00Z"),
            1,
            "wait",
            id="their-wall-clock-is-wrong-and-does-not-matter",
        ),
    ],
)
def test_decide(document: dict[str, Any] | None, unchanged_for: float, expected: Step) -> None:
    assert decide(document, identity="me", unchanged_for=unchanged_for) == expected


def test_a_new_lease() -> None:
    document = claimed(None, key=KEY, identity="me", terms=LeaseTerms(), now=NOON)
    assert document["metadata"] == {"namespace": "a", "name": "leader"}
    assert document["spec"] == {
        "acquireTime": "2026-01-02T12:00:00.000000Z",
        "renewTime": "2026-01-02T12:00:00.000000Z",
        "leaseTransitions": 0,
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
    }


def test_taking_over_counts_a_transition_and_keeps_the_version() -> None:
    document = claimed(lease("you", leaseTransitions=3), key=KEY, identity="me", terms=LeaseTerms(), now=NOON)
    assert document["spec"]["leaseTransitions"] == 4
    assert document["metadata"]["resourceVersion"] == "5"  # so that of two who take it, one fails


def test_renewing_keeps_the_time_of_acquisition() -> None:
    before = lease("me", leaseTransitions=3, acquireTime="2026-01-01T00:00:00.000000Z")
    spec = claimed(before, key=KEY, identity="me", terms=LeaseTerms(), now=NOON)["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"]) == ("2026-01-01T00:00:00.000000Z", 3)
    assert spec["renewTime"] == "2026-01-02T12:00:00.000000Z"

"""What replicas of a picker have in common, from the name of a Pod."""

import pytest

from pointsman.epp.sources.kube import deployment_of


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ("gaie-sim-epp-6f7d8c9b5-x2x4z", "gaie-sim-epp"),
        ("gaie-sim-epp-b-6f7d8c9b5-x2x4z", "gaie-sim-epp-b"),  # another stack of the namespace has another election
        ("laptop", "selector"),
        ("", "selector"),
    ],
)
def test_the_deployment_of_a_pod(pod: str, expected: str) -> None:
    assert deployment_of(pod) == expected

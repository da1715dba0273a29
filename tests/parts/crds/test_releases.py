"""What differs between published releases of the inference definitions, and which of it breaks somebody."""

from typing import Any

import pytest
from tests.releases import release

from pointsman.api.inference import POOL, REWRITES
from pointsman.crds import Definition, compare


@pytest.mark.parametrize(
    ("old", "new", "name", "breaking"),
    [
        pytest.param("v1.0.2", "v1.1.0", POOL, {"v1: spec.targetPorts.x-kubernetes-validations"}, id="ports-rule"),
        pytest.param("v1.1.0", "v1.5.0", POOL, set(), id="app-protocol"),
        pytest.param("v1.5.0", "v1.6.0", POOL, set(), id="picker-may-be-left-out"),
        pytest.param("v1.5.0", "v1.1.0", POOL, {"v1: spec.appProtocol"}, id="back-again"),
        pytest.param("v1.2.1", "v1.5.0", REWRITES[1], {"v1alpha2: spec.rules[].split"}, id="split-became-targets"),
    ],
)  # fmt: skip
def test_releases(old: str, new: str, name: Any, breaking: set[str]) -> None:
    changes = compare(Definition(release(old)[str(name)]), Definition(release(new)[str(name)]))
    assert changes
    assert {change.path for change in changes if change.breaking} == breaking

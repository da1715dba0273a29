"""When two Deployments are the same Pods, and how these are called."""

from dataclasses import replace
from typing import Any

import pytest

from pointsman.local.plan import Deployment, Service

DEPLOYMENT = Deployment(name="d", role="simulator", replicas=2, ports=(8200,), arguments=("--v", "5"))


def test_number_of_pods_is_no_other_revision() -> None:
    assert replace(DEPLOYMENT, replicas=9).group == DEPLOYMENT.group


@pytest.mark.parametrize(
    "change",
    [{"arguments": ("--v", "6")}, {"labels": {"a": "b"}}, {"files": {"/f": "text"}}, {"selects": {"a": "b"}}],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is(change: dict[str, Any]) -> None:
    assert replace(DEPLOYMENT, **change).group != DEPLOYMENT.group


def test_names_of_pods() -> None:
    assert DEPLOYMENT.pod(3) == f"{DEPLOYMENT.group}-3"
    assert replace(DEPLOYMENT, naming="simulator-{n}").pod(3) == "simulator-3"


def test_selector() -> None:
    service = Service(name="s", selector={"a": "1"}, ports={})
    assert service.selects({"a": "1", "b": "2"})
    assert not service.selects({"a": "2"})

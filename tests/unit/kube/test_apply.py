"""The plan: what is written, what is deleted, what is refused. The writes themselves are proved in tests/cluster."""

from typing import Any

import pytest

from pointsman.core.kinds import Key, Kind
from pointsman.kube.apply import Address, Delete, Write, plan
from pointsman.kube.errors import Conflict
from pointsman.kube.ownership import Owner, Ownership, stamp

WIDGET = Kind("example.dev", "v1", "Widget", "widgets")
CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")
OWNERSHIP = Ownership(manager="widget-operator", domain="example.dev")
OWNER = Owner(WIDGET, Key("a", "w"), "u1")


def at(name: str) -> Address:
    return CONFIGMAP, Key("a", name)


def wanted(name: str) -> dict[str, Any]:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}}
    return stamp(document, owner=OWNER, ownership=OWNERSHIP)


def live(name: str, **metadata: Any) -> dict[str, Any]:
    document = wanted(name)
    return {**document, "metadata": {**document["metadata"], "uid": f"uid-{name}", **metadata}}


def make(
    desired: dict[Address, dict[str, Any]], observed: dict[Address, dict[str, Any]], *, settled: bool = False
) -> list[Write | Delete]:
    return plan(desired, observed, owner=OWNER, ownership=OWNERSHIP, settled=lambda *_: settled)


def test_create_update_and_prune_in_order() -> None:
    desired = {at("new"): wanted("new"), at("old"): wanted("old")}
    observed = {at("old"): live("old"), at("gone-1"): live("gone-1"), at("gone-2"): live("gone-2")}
    assert make(desired, observed) == [
        Write(CONFIGMAP, Key("a", "new"), wanted("new")),
        Write(CONFIGMAP, Key("a", "old"), wanted("old"), "uid-old"),
        Delete(CONFIGMAP, Key("a", "gone-2"), "uid-gone-2"),
        Delete(CONFIGMAP, Key("a", "gone-1"), "uid-gone-1"),
    ]


def test_at_rest_nothing_is_done() -> None:
    assert make({at("x"): wanted("x")}, {at("x"): live("x")}, settled=True) == []


def test_another_owners_object_refuses_the_whole_plan() -> None:
    foreign = live("taken", labels={"app.kubernetes.io/managed-by": "Helm"}, annotations={})
    with pytest.raises(Conflict, match="configmaps a/taken exists and belongs to Helm") as caught:
        make({at("new"): wanted("new"), at("taken"): wanted("taken")}, {at("taken"): foreign})
    assert caught.value.holder == "Helm"


def test_what_an_earlier_owner_of_the_name_left_is_taken_back() -> None:
    left = live("x", labels={OWNERSHIP.label: "an-earlier-uid"})
    assert make({at("x"): wanted("x")}, {at("x"): left}) == [Write(CONFIGMAP, Key("a", "x"), wanted("x"), "uid-x")]


def test_only_our_own_is_pruned() -> None:
    assert make({}, {at("x"): live("x", labels={OWNERSHIP.label: "another"}, annotations={})}) == []


@pytest.mark.parametrize("desired", [{at("x"): wanted("x")}, {}])
def test_what_is_being_deleted_is_left_alone(desired: dict[Address, dict[str, Any]]) -> None:
    assert make(desired, {at("x"): live("x", deletionTimestamp="2026-01-01T00:00:00Z")}) == []

"""Marks on objects, and what they say about whose they are."""

import json
from typing import Any

import pytest

from pointsman.core.kinds import Key, Kind
from pointsman.kube.ownership import Claim, Owner, Ownership, claim, holder, owner_of, owner_uids, stamp
from pointsman.kube.store import entry

WIDGET = Kind("example.dev", "v1", "Widget", "widgets")
CLUSTER = Kind("example.dev", "v1", "Fleet", "fleets", namespaced=False)
OWNERSHIP = Ownership(manager="widget-operator", domain="example.dev")
OWNER = Owner(WIDGET, Key("a", "w"), "u1")


def document(namespace: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace, **metadata}}


def of(uid: str) -> dict[str, Any]:
    """Return what an object with this controller has in its metadata."""
    return {"ownerReferences": [{"kind": "X", "name": "x", "uid": uid, "controller": True}]}


def test_stamp_inside_the_namespace() -> None:
    original = document("a", labels={"app": "x"})
    metadata = stamp(original, owner=OWNER, ownership=OWNERSHIP)["metadata"]
    assert metadata["labels"] == {
        "app": "x",
        "app.kubernetes.io/managed-by": "widget-operator",
        "example.dev/owner-uid": "u1",
    }
    assert metadata["annotations"] == {"example.dev/owner": "widgets.example.dev/a/w"}
    (reference,) = metadata["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("Widget", "u1", True)
    assert original == document("a", labels={"app": "x"})  # the caller's document is left alone


def test_owner_references_do_not_cross_namespaces() -> None:
    metadata = stamp(document("b"), owner=OWNER, ownership=OWNERSHIP)["metadata"]
    assert "ownerReferences" not in metadata
    assert metadata["labels"]["example.dev/owner-uid"] == "u1"


def test_a_cluster_scoped_owner_may_be_referred_to_from_anywhere() -> None:
    owner = Owner(CLUSTER, Key("", "f"), "u2")
    metadata = stamp(document("b"), owner=owner, ownership=OWNERSHIP)["metadata"]
    assert metadata["ownerReferences"][0]["kind"] == "Fleet"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"labels": {"example.dev/owner-uid": "u1"}}, "ours", id="label"),
        pytest.param({"labels": {"example.dev/owner-uid": "u0"}}, "foreign", id="another-owner"),
        pytest.param({"labels": {"example.dev/owner-uid": "u1"}, **of("u1")}, "ours", id="our-own-reference"),
        pytest.param({"labels": {"example.dev/owner-uid": "u1"}, **of("u9")}, "foreign", id="a-label-that-was-copied"),
        pytest.param(
            {
                "labels": {"example.dev/owner-uid": "u0"},
                "annotations": {"example.dev/owner": "widgets.example.dev/a/w"},
            },
            "orphaned",
            id="an-earlier-owner-of-the-same-name",
        ),
        pytest.param({"annotations": {"example.dev/owner": "anyone"}}, "orphaned", id="made-ahead-for-anyone"),
        pytest.param({}, "foreign", id="no-marks"),
    ],
)
def test_claim(metadata: dict[str, Any], expected: Claim) -> None:
    assert claim(document("a", **metadata), owner=OWNER, ownership=OWNERSHIP) == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"annotations": {"example.dev/owner": "widgets.example.dev/b/v"}}, "widgets.example.dev/b/v"),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"managedFields": [{"manager": "kubectl"}, {"manager": "kubectl"}]}, "kubectl"),
        ({}, "someone else"),
    ],
)
def test_holder_in_words(metadata: dict[str, Any], expected: str) -> None:
    assert holder(document("a", **metadata), ownership=OWNERSHIP) == expected


def test_owners_of_an_entry_by_label_and_reference() -> None:
    marked = document("a", labels={"example.dev/owner-uid": "u1"}, ownerReferences=[{"uid": "u1"}, {"uid": "u2"}])
    item = entry(Kind("", "v1", "ConfigMap", "configmaps"), json.dumps(marked).encode())
    assert set(owner_uids(item, ownership=OWNERSHIP)) == {"u1", "u2"}


def test_owner_of_a_document() -> None:
    owner = owner_of(WIDGET, {"metadata": {"namespace": "a", "name": "w", "uid": "u1"}})
    assert owner == OWNER
    assert str(owner) == "widgets.example.dev/a/w"


@pytest.mark.parametrize(("controller", "found"), [("u1", ["u1"]), ("u9", [])])
def test_a_copied_label_does_not_make_an_object_ours(controller: str, found: list[str]) -> None:
    """The control plane copies a Service's labels to its EndpointSlices; pruning goes by this index."""
    metadata = {"labels": {"example.dev/owner-uid": "u1"}, **of(controller)}
    item = entry(WIDGET, json.dumps(document("a", **metadata)).encode())
    assert list(OWNERSHIP.index(item)) == found

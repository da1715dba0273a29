"""The no-op check, on managedFields as a real API server writes them."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kube.settled import is_settled, owned_fields, owned_values

DESIRED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "a", "labels": {"app": "web"}},
    "spec": {
        "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    },
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:app": {}}},
    "f:spec": {
        "f:selector": {},
        "f:ports": {
            'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}, "f:targetPort": {}},
            'k:{"port":53,"protocol":"UDP"}': {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}},
        },
    },
}
LIVE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "web",
        "namespace": "a",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"app": "web", "theirs": "1"},
        "managedFields": [
            {"manager": "other", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}},
            {"manager": "us", "operation": "Apply", "fieldsV1": FIELDS},
        ],
    },
    "spec": {
        "clusterIP": "10.96.0.9",
        "selector": {"app": "web"},
        "ports": [
            {"name": "theirs", "port": 9, "protocol": "TCP"},
            {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        ],
    },
}


def settled(desired: Any = DESIRED, live: Any = LIVE, manager: str = "us") -> bool:
    return is_settled(desired, live, manager=manager)


def test_defaults_and_what_others_added_are_no_reason_to_write() -> None:
    assert settled()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("metadata", "labels", "app"), "other", id="value-differs"),
        pytest.param(("metadata", "labels", "new"), "1", id="field-added"),
        pytest.param(("metadata", "labels"), {}, id="field-no-longer-wanted"),
        pytest.param(("spec", "selector"), {"app": "other"}, id="atomic-map-differs"),
        pytest.param(("spec", "ports"), DESIRED["spec"]["ports"][:1], id="element-no-longer-wanted"),
        pytest.param(("spec", "ports"), [*DESIRED["spec"]["ports"], {"port": 9}], id="element-added"),
        pytest.param(("spec", "ports", 0, "targetPort"), 8080, id="element-differs"),
        pytest.param(("spec", "type"), "ClusterIP", id="default-now-wanted-explicitly"),
    ],
)
def test_what_we_want_changed(path: tuple[str | int, ...], value: object) -> None:
    desired = copy.deepcopy(DESIRED)
    at: Any = desired
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert not settled(desired)


def test_someone_changed_our_value() -> None:
    live = copy.deepcopy(LIVE)
    live["spec"]["ports"][1]["targetPort"] = 1
    assert not settled(live=live)


def test_someone_took_a_field_over() -> None:
    live = copy.deepcopy(LIVE)
    del live["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"]
    assert not settled(live=live)


def test_an_object_that_we_never_applied_is_not_settled_even_if_equal() -> None:
    assert not settled(manager="stranger")
    live = copy.deepcopy(LIVE)
    live["metadata"]["managedFields"][1]["operation"] = "Update"
    assert not settled(live=live)


def test_status_has_its_own_entry() -> None:
    live = {
        "metadata": {
            "name": "x",
            "managedFields": [
                {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}}}},
                {
                    "manager": "us",
                    "operation": "Apply",
                    "subresource": "status",
                    "fieldsV1": {"f:status": {"f:phase": {}}},
                },
            ],
        },
        "spec": {"a": 1},
        "status": {"phase": "Up"},
    }
    wanted = {"metadata": {"name": "x", "uid": "u"}, "status": {"phase": "Up"}}
    assert is_settled(wanted, live, manager="us", subresource="status")
    assert not is_settled(wanted, live, manager="us")
    assert owned_fields(live, manager="us") == {"f:spec": {"f:a": {}}}


def test_sets_go_by_value() -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:finalizers": {".": {}, 'v:"a/b"': {}}}}
    live: dict[str, Any] = {
        "metadata": {
            "name": "x",
            "finalizers": ["other/z", "a/b"],
            "managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": fields}],
        }
    }
    assert settled({"metadata": {"name": "x", "finalizers": ["a/b"]}}, live)
    assert not settled({"metadata": {"name": "x", "finalizers": ["a/c"]}}, live)
    live["metadata"]["finalizers"] = ["other/z"]
    assert not settled({"metadata": {"name": "x", "finalizers": ["a/b"]}}, live)


def test_owned_values_show_our_part_only() -> None:
    before = owned_values(LIVE, manager="us")
    assert before["f:spec"]["f:ports"]['k:{"port":80,"protocol":"TCP"}']["f:targetPort"] == "http"
    theirs = copy.deepcopy(LIVE)
    theirs["metadata"]["labels"]["theirs"] = "2"
    theirs["spec"]["ports"][0]["name"] = "renamed"
    assert owned_values(theirs, manager="us") == before
    ours = copy.deepcopy(LIVE)
    ours["spec"]["ports"][1]["targetPort"] = 1
    assert owned_values(ours, manager="us") != before
    del ours["spec"]["ports"][1]
    assert owned_values(ours, manager="us") != before


def test_true_is_not_one() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:a": {}}}
    managed = [{"manager": "us", "operation": "Apply", "fieldsV1": fields}]
    live = {"metadata": {"name": "x", "managedFields": managed}, "spec": {"a": 1}}
    assert not settled({"metadata": {"name": "x"}, "spec": {"a": True}}, live)


Values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)
Documents = st.dictionaries(st.text("abc", min_size=1, max_size=2), Values, min_size=1, max_size=3)


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": _fields(inner) for name, inner in value.items()}


@given(ours=Documents, theirs=Documents)
def test_settled_exactly_when_nothing_differs(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """A live object that holds what we applied is settled for that, and for nothing else."""
    managed = [{"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": _fields(ours)}}]
    live = {"metadata": {"name": "x", "managedFields": managed}, "spec": {**copy.deepcopy(ours), "defaulted": 1}}
    assert settled({"metadata": {"name": "x"}, "spec": ours}, live)
    if repr(ours) != repr(theirs) and ours != theirs:
        assert not settled({"metadata": {"name": "x"}, "spec": theirs}, live)

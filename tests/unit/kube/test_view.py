"""Reading: narrowed, ordered, and loud about kinds that nobody watches."""

import json
from collections.abc import Mapping

import pytest

from pointsman.core.kinds import Key, Kind
from pointsman.kube.store import Store, entry
from pointsman.kube.view import View

CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")


@pytest.fixture
def view() -> View:
    store = Store(CONFIGMAP)
    for namespace, name, app in (("b", "x", "one"), ("a", "y", "one"), ("a", "x", "two")):
        metadata = {"namespace": namespace, "name": name, "uid": namespace + name, "labels": {"app": app}}
        store.put(entry(CONFIGMAP, json.dumps({"metadata": metadata}).encode()))
    return View({CONFIGMAP: store})


def test_get_returns_a_whole_document_or_none(view: View) -> None:
    found = view.get(CONFIGMAP, Key("a", "x"))
    assert found is not None and found["kind"] == "ConfigMap"
    assert view.get(CONFIGMAP, Key("a", "z")) is None


def test_all_is_ordered_and_narrowed(view: View) -> None:
    def names(*, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> list[str]:
        found = view.all(CONFIGMAP, namespace=namespace, labels=labels)
        return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found]

    assert names() == ["a/x", "a/y", "b/x"]
    assert names(namespace="a") == ["a/x", "a/y"]
    assert names(labels={"app": "one"}) == ["a/y", "b/x"]
    assert names(namespace="a", labels={"app": "two"}) == ["a/x"]


def test_find_uses_an_index(view: View) -> None:
    assert [item.key for item in view.find(CONFIGMAP, "uid", "bx")] == [Key("b", "x")]


def test_a_kind_that_is_not_watched_is_an_error_not_an_empty_list(view: View) -> None:
    with pytest.raises(LookupError, match="secrets is not watched"):
        view.all(Kind("", "v1", "Secret", "secrets"))

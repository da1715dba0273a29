"""The cache: diffs, indexes, order of versions. The properties compare it with a plain dict."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pointsman.core.kinds import Key, Kind
from pointsman.kube.store import Change, Entry, Store, by_label, entry, matches

CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")


def make(name: str, version: int, *, namespace: str = "a", uid: str = "", **metadata: Any) -> Entry:
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or name,
            "resourceVersion": str(version),
            **metadata,
        },
        "data": {"version": str(version)},
    }
    return entry(CONFIGMAP, json.dumps(document).encode())


def names(changes: list[Change]) -> list[tuple[str | None, ...]]:
    return [tuple(str(side.version) if side else None for side in (change.old, change.new)) for change in changes]


def test_put_tells_what_changed() -> None:
    store = Store(CONFIGMAP)
    first = store.put(make("x", 1))
    second = store.put(make("x", 2))
    assert first is not None and first.old is None
    assert second is not None and names([second]) == [("1", "2")]


def test_repeated_and_older_events_are_no_news() -> None:
    store = Store(CONFIGMAP)
    store.put(make("x", 5))
    assert store.put(make("x", 5)) is None
    assert store.put(make("x", 4)) is None
    assert store.drop(make("x", 4)) is None
    assert Key("a", "x") in store


def test_replace_delivers_what_happened_while_nobody_watched() -> None:
    store = Store(CONFIGMAP)
    for name in ("gone", "kept", "changed"):
        store.put(make(name, 1))
    changes = store.replace([make("kept", 1), make("changed", 7), make("new", 8)], version="9")
    assert sorted(names(changes), key=str) == sorted([("1", None), ("1", "7"), (None, "8")], key=str)
    assert {item.key.name for item in store} == {"kept", "changed", "new"}


def test_replace_follows_a_cluster_restored_from_a_backup() -> None:
    store = Store(CONFIGMAP)
    store.put(make("x", 900))
    assert names(store.replace([make("x", 10)], version="12")) == [("900", "10")]
    assert store.put(make("x", 13)) is not None


def test_absorb_enters_ahead_of_the_watch_and_never_behind_it() -> None:
    store = Store(CONFIGMAP)
    store.replace([], version="10")
    assert store.absorb(make("ours", 11)) is not None
    assert store.put(make("ours", 11)) is None  # the watch catches up: no second change
    store.drop(make("ours", 12))
    assert store.absorb(make("ours", 11)) is None  # a slow answer must not bring back what was deleted
    assert len(store) == 0


def test_a_reader_cannot_spoil_the_cache() -> None:
    store = Store(CONFIGMAP)
    store.put(make("x", 1))
    found = store.get(Key("a", "x"))
    assert found is not None
    found.read()["data"]["version"] = "spoilt"
    assert found.read()["data"] == {"version": "1"}
    assert (found.read()["apiVersion"], found.read()["kind"]) == ("v1", "ConfigMap")


def owners(item: Entry) -> list[str]:
    return [reference.uid for reference in item.meta.owner_references or ()]


def test_indexes_follow_changes() -> None:
    store = Store(CONFIGMAP, indexes={"app": by_label("app"), "owner": owners})
    store.put(make("x", 1, labels={"app": "one"}, ownerReferences=[{"uid": "u1"}]))
    store.put(make("y", 1, labels={"app": "one"}))
    assert [item.key.name for item in store.find("app", "one")] == ["x", "y"]
    assert [item.key.name for item in store.find("owner", "u1")] == ["x"]
    store.put(make("x", 2, labels={"app": "two"}))
    assert [item.key.name for item in store.find("app", "one")] == ["y"]
    assert store.find("owner", "u1") == []


def test_an_index_added_later_covers_what_is_there() -> None:
    store = Store(CONFIGMAP)
    store.put(make("x", 1, labels={"app": "one"}))
    store.add_index("app", by_label("app"))
    assert [item.key.name for item in store.find("app", "one")] == ["x"]


def test_a_rule_that_fails_on_an_object_leaves_it_out_and_the_cache_alive() -> None:
    store = Store(CONFIGMAP, indexes={"size": lambda item: [str(item.read()["data"]["size"])]})
    assert store.put(make("x", 1)) is not None
    assert Key("a", "x") in store
    assert store.drop(make("x", 2)) is not None


def test_clear_empties_the_indexes_too() -> None:
    store = Store(CONFIGMAP)
    store.put(make("x", 1))
    assert names(store.clear()) == [("1", None)]
    assert store.find("namespace", "a") == []
    assert store.put(make("x", 1)) is not None


def test_matches_wants_all_labels() -> None:
    item = make("x", 1, labels={"a": "1", "b": "2"})
    assert matches(item, {"a": "1", "b": "2"})
    assert not matches(item, {"a": "1", "c": "3"})


class AgainstDict(RuleBasedStateMachine):
    """Any order of events, repeated at will, leaves the store equal to a dict, and the changes rebuild it."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(CONFIGMAP)
        self.truth: dict[str, int] = {}
        self.rebuilt: dict[str, int] = {}
        self.version = 0

    def take(self, changes: list[Change]) -> None:
        for change in changes:
            if change.new is None:
                assert change.old is not None
                del self.rebuilt[change.old.key.name]
            else:
                self.rebuilt[change.new.key.name] = change.new.version

    @rule(name=st.sampled_from("abcdef"), repeats=st.integers(1, 3))
    def put(self, name: str, repeats: int) -> None:
        self.version += 1
        self.truth[name] = self.version
        for _ in range(repeats):
            change = self.store.put(make(name, self.version))
            self.take([change] if change else [])

    @rule(name=st.sampled_from("abcdef"))
    def drop(self, name: str) -> None:
        self.version += 1
        self.truth.pop(name, None)
        change = self.store.drop(make(name, self.version))
        self.take([change] if change else [])

    @rule(kept=st.sets(st.sampled_from("abcdef")))
    def relist(self, kept: set[str]) -> None:
        self.version += 1
        self.truth = {name: version for name, version in self.truth.items() if name in kept}
        items = [make(name, version) for name, version in self.truth.items()]
        self.take(self.store.replace(items, version=str(self.version)))

    @invariant()
    def equal(self) -> None:
        assert {item.key.name: item.version for item in self.store} == self.truth == self.rebuilt
        assert {item.key.name for item in self.store.find("namespace", "a")} == set(self.truth)


AgainstDict.TestCase.settings = settings(max_examples=40)
TestAgainstDict = AgainstDict.TestCase


@given(st.permutations(range(1, 7)))
def test_events_in_any_order_end_at_the_newest(versions: list[int]) -> None:
    store = Store(CONFIGMAP)
    for version in versions:
        store.put(make("x", version))
    found = store.get(Key("a", "x"))
    assert found is not None and found.version == 6

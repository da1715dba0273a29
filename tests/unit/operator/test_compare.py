"""Differences as people read them; against a real server they are proved in tests/cluster/test_diff.py."""

from pointsman.api import parse
from pointsman.operator.compare import difference, meaning, plain

HEAD = {"apiVersion": "sim.llm-d.io/v1alpha1", "kind": "SimulatorDeployment", "metadata": {"name": "x"}}


def test_same_in_another_order_is_no_difference() -> None:
    assert difference({"a": 1, "b": {"c": [1], "d": 2}}, {"b": {"d": 2, "c": [1]}, "a": 1}, name="x") == ""


def test_change_is_shown_with_its_names() -> None:
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3}, name="Kind/ns/n") == (
        "diff Kind/ns/n\n--- cluster/Kind/ns/n\n+++ file/Kind/ns/n\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
    )


def test_new_and_gone() -> None:
    assert "\n+a: 1\n" in difference(None, {"a": 1}, name="x")
    assert "\n-a: 1\n" in difference({"a": 1}, None, name="x")


def test_default_that_is_written_out_means_the_same() -> None:
    short = parse({**HEAD, "spec": {"epp": {}}}, source="it")
    long = parse({**HEAD, "spec": {"replicas": 2, "epp": {"port": 8100, "args": None}}}, source="it")
    assert meaning(short) == meaning(long)


def test_what_the_server_writes_is_left_out() -> None:
    document = {
        "kind": "Service",
        "metadata": {"name": "x", "uid": "1", "resourceVersion": "2", "managedFields": [], "labels": {"a": "b"}},
        "status": {"loadBalancer": {}},
    }
    assert plain(document) == {"kind": "Service", "metadata": {"name": "x", "labels": {"a": "b"}}}

"""The steps, their order, and what tells one from another; what a journal remembers."""

from dataclasses import replace

import pytest
from tests.unit.bundle.made import crd
from tests.unit.platform.made import NOTE, WIDGET, wanted

from pointsman.platform.journal import Journal, read_journal, write_journal
from pointsman.platform.marks import COMPONENT, STEP
from pointsman.platform.steps import MOST_DEFINITION, STEPS, Wanted, steps_of, too_large

WHOLE = wanted(
    presync=[NOTE], postsync=[WIDGET], pull_secret="pull", docker_config='{"auths": {}}', operand_namespaces=["operand"]
)


def test_every_step_in_order_and_the_parts_around_the_release() -> None:
    assert tuple(each.name for each in steps_of(WHOLE)) == STEPS
    assert [each.name for each in steps_of(WHOLE, part="before")] == [
        "namespace",
        "definitions",
        "presync",
        "pull-secret",
    ]
    assert [each.name for each in steps_of(WHOLE, part="after")] == ["wait", "postsync"]
    only = Wanted(name="gateway", namespace="x", presync=[NOTE])
    assert [each.name for each in steps_of(only)] == ["namespace", "presync"]


def test_every_object_carries_our_labels_and_a_place() -> None:
    by_step = {each.name: each.objects for each in steps_of(WHOLE)}
    for name, objects in by_step.items():
        for each in objects:
            assert each["metadata"]["labels"] == {COMPONENT: "thing", STEP: name}
    assert [each["metadata"]["name"] for each in by_step["namespace"]] == ["thing-system", "operand"]
    (account,) = by_step["presync"]
    assert account["metadata"]["namespace"] == "thing-system"
    assert account["imagePullSecrets"] == [{"name": "pull"}]
    assert {each["metadata"]["namespace"] for each in by_step["pull-secret"]} == {"thing-system", "operand"}
    assert WHOLE.all_values["global"]["managedBy"] == "pointsman-platform"


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        pytest.param({"values": {"a": 1}}, {"install"}, id="values"),
        pytest.param({"own_definitions": [crd("gadgets.example.com")]}, {"definitions"}, id="definitions"),
        pytest.param({"presync": []}, {"presync"}, id="presync"),
        pytest.param({"docker_config": "other"}, set(), id="no password leaves a trace"),
    ],
)
def test_a_change_shows_in_the_steps_that_it_concerns(change: dict[str, object], steps: set[str]) -> None:
    before = {each.name: each.fingerprint for each in steps_of(WHOLE)}
    after = {each.name: each.fingerprint for each in steps_of(replace(WHOLE, **change))}  # type: ignore[arg-type]
    assert {name for name in before if before[name] != after.get(name)} == steps


def test_a_definition_that_no_server_stores_is_named() -> None:
    huge = crd()
    huge["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "x" * MOST_DEFINITION
    (sentence,) = too_large(wanted(own_definitions=[huge]))
    assert "widgets.example.com has" in sentence
    assert not too_large(WHOLE)


def test_an_interrupted_run_is_gone_on_with_and_a_finished_one_begun_anew() -> None:
    first, second = steps_of(WHOLE)[:2]
    journal = Journal().begun().with_done(first, version="1.2.3")
    kept = read_journal(write_journal(journal))
    assert not kept.finished
    again = kept.begun()
    assert again.has(first)
    assert not again.has(second)
    assert not again.has(replace(first, fingerprint="another"))
    assert not kept.ended().begun().has(first)
    assert not again.without("thing").done


@pytest.mark.parametrize(
    "data", [None, {}, {"journal.json": "{"}, {"journal.json": "[]"}, {"journal.json": '{"done": 1}'}]
)
def test_nonsense_is_an_empty_journal(data: object) -> None:
    assert read_journal(data) == Journal()

"""Who may know of a replica when: the rule that keeps requests from failing while replicas come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.local.replicas import ALONE_UP_TO, Member, for_envoy, for_picker, next_names, shares, surplus
from pointsman.render.addresses import Address

members = st.lists(
    st.builds(
        Member,
        name=st.text(max_size=3),
        address=st.builds(Address, st.just("127.0.0.1"), st.integers(1, 9)),
        healthy=st.booleans(),
        leaving=st.booleans(),
    )
)


@given(members, st.sets(st.builds(Address, st.just("127.0.0.1"), st.integers(1, 9))))
def test_picker_never_knows_more_than_envoy(known: list[Member], in_envoy: set[Address]) -> None:
    pickable = for_picker(known, known_to_envoy=in_envoy)
    assert {member.address for member in pickable} <= in_envoy
    assert {member.address for member in pickable} <= set(for_envoy(known))
    assert all(member.healthy and not member.leaving for member in pickable)


def test_dead_replica_stays_with_envoy_whose_retries_need_a_stable_list() -> None:
    dead = Member(name="a", address=Address("127.0.0.1", 1), healthy=False, leaving=False)
    assert for_envoy([dead]) == [dead.address]


@pytest.mark.parametrize(
    ("names", "wanted", "added"),
    [
        pytest.param([], 2, ["simulator-0", "simulator-1"], id="first"),
        pytest.param(["simulator-0"], 3, ["simulator-1", "simulator-2"], id="more"),
        pytest.param(["simulator-0", "simulator-2"], 3, ["simulator-1"], id="gap"),
        pytest.param(["simulator-0"], 1, [], id="enough"),
        pytest.param(["simulator-0", "simulator-1"], 1, [], id="too many"),
    ],
)
def test_names_to_add(names: list[str], wanted: int, added: list[str]) -> None:
    assert next_names(names, wanted=wanted) == added


def test_youngest_leave_first() -> None:
    assert surplus(["a", "b", "c"], wanted=1) == ["c", "b"]
    assert surplus(["a"], wanted=3) == []


@pytest.mark.parametrize(
    ("wanted", "processes"),
    [
        pytest.param(ALONE_UP_TO, [["a"], ["b"]], id="few are alone"),
        pytest.param(ALONE_UP_TO + 1, [["a", "b"]], id="many share"),
    ],
)
def test_new_replicas_by_process(wanted: int, processes: list[list[str]]) -> None:
    assert shares(["a", "b"], wanted=wanted) == processes
    assert shares([], wanted=wanted) == []

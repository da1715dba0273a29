"""Which simulators share a process as a stack grows and shrinks; no process is started here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.local.test_programs import settings

from pointsman.local.fleet import Fleet
from pointsman.local.processes import Process, Program


def unstarted(program: Program) -> Process:
    return Process(program, log=Path("unused"), changed=lambda _: None, clock=lambda: 0.0)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(settings(first_simulator_port=0), process=unstarted)


def scale(fleet: Fleet, wanted: int) -> tuple[list[str], set[str]]:
    """Return what is started and stopped on the way."""
    started = fleet.grow(wanted)
    fleet.leave(wanted)
    return [process.program.name for process in started], {process.program.name for process in fleet.release()}


def where(fleet: Fleet) -> dict[str, str]:
    return {record.name: record.address for record in fleet.records()}


def test_few_are_a_process_each_and_many_share_one(fleet: Fleet) -> None:
    assert scale(fleet, 2) == (["simulator-0", "simulator-1"], set())
    assert scale(fleet, 20) == (["simulator-2..simulator-19"], set())
    assert len(fleet.processes()) == 3


def test_process_ends_with_the_last_that_needs_it(fleet: Fleet) -> None:
    scale(fleet, 3)
    scale(fleet, 20)
    assert scale(fleet, 4) == ([], set())
    assert scale(fleet, 3) == ([], {"simulator-3..simulator-19"})


def test_spares_return_where_they_were_before_anything_is_started(fleet: Fleet) -> None:
    scale(fleet, 20)
    before = where(fleet)
    scale(fleet, 5)
    assert scale(fleet, 12) == ([], set())
    assert scale(fleet, 30) == (["simulator-20..simulator-29"], set())
    assert where(fleet).items() >= before.items()


def test_who_is_leaving_is_shown_and_not_picked(fleet: Fleet) -> None:
    fleet.grow(3)
    assert [str(address) for address in fleet.leave(1)] == [where(fleet)[f"simulator-{n}"] for n in (2, 1)]
    assert [record.state for record in fleet.records()] == ["starting", "leaving", "leaving"]
    assert [member.leaving for member in fleet.members()] == [False, True, True]


@given(st.lists(st.integers(1, 30), max_size=6))
def test_any_way_of_scaling_counts_up_without_a_gap_and_moves_nobody(sizes: list[int]) -> None:
    fleet = Fleet(settings(first_simulator_port=0), process=unstarted)
    running: set[str] = set()
    for wanted in sizes:
        before = where(fleet)
        started, stopped = scale(fleet, wanted)
        after = where(fleet)
        assert list(after) == [f"simulator-{n}" for n in range(wanted)]
        assert len(set(after.values())) == wanted
        assert all(after[name] == before[name] for name in before.keys() & after.keys())
        running = (running | set(started)) - stopped
        assert running == {process.program.name for process in fleet.processes()}

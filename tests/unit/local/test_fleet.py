"""Which simulators share a process as a stack grows and shrinks; no process is started here."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.local.test_standard import FOLDER, here, part

from pointsman.local.fleet import Fleet
from pointsman.local.plan import Deployment, Ports
from pointsman.local.processes import Process
from pointsman.local.programs import program


def new_fleet(deployment: Deployment) -> Fleet:
    free = itertools.count(1)

    def place(count: int) -> Sequence[Ports]:
        return [{port: here(next(free)) for port in deployment.ports} for _ in range(count)]

    def unstarted(names: Sequence[str], homes: Sequence[Ports]) -> Process:
        found = program(deployment, names=names, homes=homes, folder=FOLDER, envoy=Path("envoy"))
        return Process(found, log=Path("unused"), changed=lambda _: None, clock=lambda: 0.0)

    return Fleet(deployment, place=place, process=unstarted)


@pytest.fixture
def fleet() -> Fleet:
    return new_fleet(part("simulator"))


def scale(fleet: Fleet, wanted: int) -> tuple[list[str], set[str]]:
    """Return what is started and stopped on the way."""
    started = fleet.grow(wanted)
    fleet.leave(wanted)
    return [process.program.name for process in started], {process.program.name for process in fleet.release()}


def where(fleet: Fleet) -> dict[str, str]:
    return {member.name: str(member.address) for member in fleet.members()}


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
    assert [member.name for member in fleet.leave(1)] == ["simulator-2", "simulator-1"]
    assert [member.leaving for member in fleet.members()] == [False, True, True]


def test_only_simulators_share_a_process() -> None:
    pickers = new_fleet(Deployment(name="epp", role="picker", replicas=9, ports=(9002, 9003, 9090)))
    assert len(pickers.grow(9)) == 9
    assert len(set(pickers.ports())) == 27


@settings(max_examples=30)  # each asks for free ports
@given(st.lists(st.integers(1, 30), max_size=6))
def test_any_way_of_scaling_counts_up_without_a_gap_and_moves_nobody(sizes: list[int]) -> None:
    fleet = new_fleet(part("simulator"))
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

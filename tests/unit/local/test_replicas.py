"""Who may know of a replica when: the rule that keeps requests from failing while replicas come and go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.local.envoys import Backend, Host
from pointsman.local.plan import Service
from pointsman.local.replicas import PodMember, behind, for_envoy, for_picker, next_names, shares, surplus
from pointsman.render.envoy.addresses import Address

members = st.lists(
    st.builds(
        PodMember,
        name=st.text(max_size=3),
        address=st.builds(Address, st.just("127.0.0.1"), st.integers(1, 9)),
        healthy=st.booleans(),
        leaving=st.booleans(),
    )
)


@given(members, st.sets(st.builds(Address, st.just("127.0.0.1"), st.integers(1, 9))))
def test_picker_never_knows_more_than_envoy(known: list[PodMember], in_envoy: set[Address]) -> None:
    pickable = for_picker(known, known_to_envoy=in_envoy)
    assert {member.address for member in pickable} <= in_envoy
    assert {member.address for member in pickable} <= set(for_envoy(known))
    assert all(member.healthy and not member.leaving for member in pickable)


def test_dead_replica_stays_with_envoy_whose_retries_need_a_stable_list() -> None:
    dead = PodMember(name="a", address=Address("127.0.0.1", 1), healthy=False, leaving=False)
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
    assert next_names(names, wanted=wanted, name="simulator-{}".format) == added


def test_youngest_leave_first() -> None:
    assert surplus(["a", "b", "c"], wanted=1) == ["c", "b"]
    assert surplus(["a"], wanted=3) == []


@pytest.mark.parametrize(
    ("together", "processes"),
    [
        pytest.param(False, [["a"], ["b"]], id="few are alone"),
        pytest.param(True, [["a", "b"]], id="many share"),
    ],
)
def test_new_replicas_by_process(together: bool, processes: list[list[str]]) -> None:
    assert shares(["a", "b"], together=together) == processes
    assert shares([], together=together) == []


def pod(number: int, *, healthy: bool = True, leaving: bool = False, **more: Any) -> PodMember:
    ports = {port: Address("127.0.0.1", port + number) for port in (9000, 9100)}
    return PodMember(name=f"p{number}", address=ports[9000], ports=ports, healthy=healthy, leaving=leaving, **more)


def test_behind_a_service_is_who_is_selected_healthy_and_stays() -> None:
    service = Service(name="s", selector={"app": "x"}, ports={80: 9000, 81: 9100})
    labels = {"app": "x", "more": "y"}
    members = [
        pod(1, labels=labels),
        pod(2, labels=labels, healthy=False),
        pod(3, labels=labels, leaving=True),
        pod(4, labels={"app": "other"}),
    ]
    hosts = behind(Backend(service="s", port=80), services=[service], members=members)
    assert hosts == [Host(Address("127.0.0.1", 9001))]
    (checked,) = behind(Backend(service="s", port=80, health=81), services=[service], members=members)
    assert checked.health_port == 9101
    assert behind(Backend(service="gone", port=80), services=[service], members=members) == []


def test_picker_that_is_not_healthy_stays_for_the_gateway_to_judge() -> None:
    service = Service(name="s", selector={}, ports={80: 9000})
    members = [pod(1, role="picker", healthy=False), pod(2, role="picker", leaving=True)]
    assert len(behind(Backend(service="s", port=80), services=[service], members=members)) == 1


def test_picker_picks_among_its_own() -> None:
    members = [
        pod(1, labels={"stack": "a"}),
        pod(2, labels={"stack": "b"}),
        pod(3, labels={"stack": "a"}, role="gateway"),
    ]
    known = [member.address for member in members]
    assert for_picker(members, known_to_envoy=known, selects={"stack": "a"}) == members[:1]

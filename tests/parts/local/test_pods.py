"""Where Pods find room, and which revisions are kept; no process is started here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.unit.local.test_standard import FOLDER, part

from pointsman.local.envoys import Backend
from pointsman.local.plan import Deployment, Ports
from pointsman.local.pods import Pods
from pointsman.local.processes import Process
from pointsman.local.programs import program


def unstarted(deployment: Deployment, names: Sequence[str], homes: Sequence[Ports]) -> Process:
    found = program(deployment, names=names, homes=homes, folder=FOLDER, envoy=Path("envoy"))
    return Process(found, log=Path("unused"), changed=lambda _: None, clock=lambda: 0.0)


PICKER = Deployment(name="epp", role="picker", replicas=1, ports=(9002, 9003, 9090))


def test_every_port_of_every_pod_is_another() -> None:
    pods = Pods(process=unstarted, taken=lambda: ())
    pods.have([PICKER, part("simulator", first_simulator_port=0)])
    pods.fleet(PICKER).grow(3)
    pods.fleets("simulator")[0].grow(3)
    assert len(pods.ports()) == 3 * 3 + 3
    assert len(pods.members()) == 6
    assert [member.role for member in pods.of("picker")] == ["picker"] * 3


def test_who_is_many_gets_ports_in_a_row() -> None:
    pods = Pods(process=unstarted, taken=lambda: ())
    pods.have([part("simulator", first_simulator_port=0)])
    (process,) = pods.fleets("simulator")[0].grow(20)
    ports = sorted(pods.ports())
    assert ports == list(range(ports[0], ports[0] + 20))
    assert pods.processes("simulator") == [process]


def test_chosen_ports_are_kept_free_before_anyone_is_there() -> None:
    pods = Pods(process=unstarted, taken=lambda: ())
    gateway = part("gateway")
    pods.have([gateway])
    assert pods.ports() == {address.port for address in gateway.pinned.values()}
    pods.fleet(gateway).grow(1)
    found = pods.of("gateway")[0]
    assert list(found.ports) == list(gateway.ports)
    assert gateway.pinned.items() <= found.ports.items()
    assert len(set(found.ports.values())) == len(gateway.ports)  # who was not chosen has a port of its own
    assert pods.backends() == [Backend(service="gaie-sim-epp", port=9002)]


def test_revision_is_forgotten_when_it_is_empty_and_unwanted() -> None:
    pods = Pods(process=unstarted, taken=lambda: ())
    other = replace(PICKER, arguments=("--v", "5"))
    pods.have([PICKER, other])
    pods.fleet(PICKER).grow(1)
    pods.forget(wanted=())
    assert [fleet.deployment for fleet in pods.fleets("picker")] == [PICKER]
    pods.fleet(PICKER).leave(0)
    pods.fleet(PICKER).release()
    pods.forget(wanted=[PICKER.group])
    assert len(pods.fleets("picker")) == 1
    pods.forget(wanted=())
    assert pods.fleets("picker") == []

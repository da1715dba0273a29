"""Which ports Services get, and that they keep them; that bytes flow is proved in tests/envoy."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.local.plan import Service
from pointsman.local.ports import any_free
from pointsman.local.processes import Process, Program
from pointsman.local.relay import Relay
from pointsman.local.state import Folder


def unstarted(program: Program) -> Process:
    return Process(program, log=Path("unused"), changed=lambda _: None, clock=lambda: 0.0)


def service(name: str, *ports: int, headless: bool = False) -> Service:
    return Service(name=name, selector={}, ports=dict.fromkeys(ports, 8200), headless=headless)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    folder.acquire()
    yield folder
    folder.retire()


@pytest.fixture
def relay(folder: Folder) -> Relay:
    return Relay(folder, envoy=Path("envoy"), process=unstarted)


def test_own_number_where_it_is_free(relay: Relay) -> None:
    free = any_free()
    relay.settle([service("a", free), service("b", free)], taken=())
    assert relay.address("a", free).port == free
    assert relay.address("b", free).port != free


def test_another_where_it_is_taken(relay: Relay) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        relay.settle([service("a", taken)], taken=())
    assert relay.address("a", taken).port != taken


def test_any_ports(folder: Folder) -> None:
    free = any_free()
    relay = Relay(folder, envoy=Path("envoy"), process=unstarted, any_ports=True)
    relay.settle([service("a", free)], taken=())
    assert relay.address("a", free).port != free


def test_place_stays_and_the_process_too(relay: Relay, folder: Folder) -> None:
    port = any_free()
    relay.settle([service("a", port), service("h", 1, headless=True)], taken=())
    before = relay.places()
    assert list(before) == [f"a:{port}"]
    assert not folder.listeners_file.exists()
    assert len(relay.tell()) == 1
    relay.settle([service("b", any_free(given_out={port})), service("a", port)], taken=relay.ports())
    assert relay.tell() == []
    assert relay.places().items() >= before.items()
    assert len(json.loads(folder.listeners_file.read_text())["resources"]) == 2
    relay.settle([], taken=())
    relay.tell()
    assert json.loads(folder.listeners_file.read_text())["resources"] == []


def test_without_services_there_is_no_process(relay: Relay) -> None:
    relay.settle([service("h", 1, headless=True)], taken=())
    assert relay.tell() == []
    assert relay.processes == []

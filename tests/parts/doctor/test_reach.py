"""Ways to a Pod's port: its own address when that answers, else kubectl, which is ended with the doctor.

The program that stands for kubectl prints what kubectl prints; a real port-forward needs a kubelet.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from pointsman.doctor.gather.reach import Away, Reach, kubectl
from pointsman.render.envoy.addresses import Address


def pod(address: str) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"namespace": "ns", "name": "epp-1"}, "status": {"podIP": address}}


def standing_in(folder: Path, script: str) -> tuple[str, ...]:
    path = folder / "kubectl"
    path.write_text(f'#!/bin/sh\necho $$ > {folder}/pid; echo "$@" > {folder}/words\n{script}\n')
    path.chmod(0o755)
    return (str(path),)


async def test_an_address_that_answers_is_used() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Reach(()) as reach:
        assert await reach.address(pod("127.0.0.1"), port) == Address("127.0.0.1", port)


async def test_else_kubectl_opens_the_way_for_as_long_as_it_is_needed(tmp_path: Path) -> None:
    script = "echo 'Forwarding from 127.0.0.1:40123 -> 15000'; exec sleep 60"
    async with Reach(standing_in(tmp_path, script)) as reach:
        for _ in range(2):  # the second time it is known
            assert await reach.address(pod(""), 15000) == Address("127.0.0.1", 40123)
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    words = (tmp_path / "words").read_text().split()
    assert words == ["port-forward", "-n", "ns", "pod/epp-1", ":15000", "--address=127.0.0.1"]


async def test_what_kubectl_says_is_passed_on(tmp_path: Path) -> None:
    async with Reach(standing_in(tmp_path, "echo 'error: pods \"epp-1\" is forbidden' >&2; exit 1")) as reach:
        with pytest.raises(Away, match="is forbidden"):
            await reach.address(pod(""), 15000)


async def test_without_kubectl_it_is_said() -> None:
    async with Reach(()) as reach:
        with pytest.raises(Away, match="no kubectl") as away:
            await reach.address(pod(""), 15000)
        assert not away.value.refused


async def test_a_pod_that_is_reached_and_does_not_listen_is_told_from_one_that_is_not_reached() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with Reach(()) as reach:
        with pytest.raises(Away, match="nobody listens there") as away:
            await reach.address(pod("127.0.0.1"), port)
        assert away.value.refused


def test_kubectl_is_called_for_the_same_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = standing_in(tmp_path, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kubectl(Path("/c")) == (program, "--kubeconfig", "/c")
    monkeypatch.setenv("PATH", "/nowhere")
    assert kubectl(None) == ()

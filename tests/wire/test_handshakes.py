"""TLS handshakes that never end: they are counted, the oldest makes room, and a newcomer always gets in."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bystander import resident_mib, watched
from tests.wire.picker import RunningPicker, running_picker
from tests.wire.raw import aside, newcomer

from pointsman.core.budget import Budget
from pointsman.core.tls import load_self_signed, server_context
from pointsman.epp.extproc.health import Health
from pointsman.wire.grpc import Router
from pointsman.wire.limits import Limits
from pointsman.wire.listener import Listener

HALF_OPEN = 3000
PACE = 50  # … between two that are served: as fast as they can would measure how fast two processes share the machine
HANDLES = Limits().handshakes + 150  # beside those, what is on its way out, and the picker's own
MEMORY = 60  # MiB; it was 160 when they were not counted
LIMITS = replace(Limits(), handshakes=8, handshake_seconds=60)


def client_hello() -> bytes:
    """Return the first words of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = anybody().wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    return outgoing.read()


def anybody() -> ssl.SSLContext:
    """Return the client's side of TLS, whoever the server is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@pytest.fixture
def picker(tmp_path: Path) -> Iterator[RunningPicker]:
    with running_picker(tmp_path, tls=True) as running:
        yield running


async def test_half_open_handshakes_cost_little_and_keep_nobody_out(picker: RunningPicker) -> None:
    """Half of them say nothing, the others begin the handshake and then leave it."""
    pid, most, hello, tls = picker.process.pid, 0, client_hello(), anybody()
    port = ("127.0.0.1", picker.grpc_port)
    before = resident_mib(pid)

    def attack() -> None:
        nonlocal most
        with contextlib.ExitStack() as kept:
            for n in range(HALF_OPEN):
                one = kept.enter_context(socket.create_connection(port, timeout=20))
                if n % 2:
                    one.sendall(hello)
                if n % PACE == 0:
                    last = socket.create_connection(port, timeout=20)
                    tls.wrap_socket(last).close()  # first come, first served: all before it have been accepted
                    most = max(most, len(list(Path(f"/proc/{pid}/fd").iterdir())))

    async with watched(lambda: newcomer(picker.grpc_port, tls=tls)):
        await aside(attack)
    grown = resident_mib(pid, peak=True) - before
    print(f"{HALF_OPEN} half-open handshakes: {most} handles, grew by {grown:.0f} MiB at most")
    assert most < HANDLES
    assert grown < MEMORY


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    health = Health()
    health.set(serving=True)
    tls = server_context()
    load_self_signed(tls)
    made = Listener(Router(health.methods(), limits=LIMITS), limits=LIMITS, budget=Budget())
    async with asyncio.TaskGroup() as tasks:
        await made.bind(host="127.0.0.1", port=0, flag="--grpc-port", tls=tls, spawn=tasks.create_task)
        yield made
        await made.drain(seconds=0.1)


async def test_the_oldest_of_the_largest_crowd_makes_room(listener: Listener) -> None:
    here = ("127.0.0.1", listener.port)
    slow = socket.create_connection(here, timeout=20, source_address=("127.0.0.2", 0))
    crowd = [await asyncio.open_connection(*here) for _ in range(3 * LIMITS.handshakes)]
    for reader, _ in crowd[: -(LIMITS.handshakes - 1)]:
        assert await asyncio.wait_for(reader.read(), timeout=20) == b"", "it made room"
    await newcomer(listener.port, tls=anybody())
    assert listener.limit_hits["handshakes"] == 2 * LIMITS.handshakes + 2
    safe = await asyncio.to_thread(anybody().wrap_socket, slow)
    assert safe.selected_alpn_protocol() == "h2", "one from elsewhere has all the time that it needs"
    safe.close()
    for _, writer in crowd:
        writer.close()


async def test_words_that_are_no_handshake_end_one_connection_only(listener: Listener) -> None:
    for _ in range(2 * LIMITS.handshakes):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), timeout=20)
        writer.close()
    await newcomer(listener.port, tls=anybody())
    assert not listener.limit_hits["handshakes"], "they are counted no longer than they last"

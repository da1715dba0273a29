"""A real picker, attacked by whoever reaches its ports: nobody else notices, and its memory stays within bounds."""

import asyncio
import contextlib
import gzip
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.bystander import Send, resident_mib, watched
from tests.waiting import until
from tests.wire.picker import RunningPicker, running_picker
from tests.wire.raw import WIDE, Attacker, aside, data, headers, newcomer, request_body, request_headers
from tests.wire.test_grpcio import headers as ext_proc_headers

from pointsman.wire.frames import PAIR, PREFACE, Code, FrameKind, Setting, frame, reset, settings, window_update
from pointsman.wire.protobuf import encode_field

HELD = 48  # MiB
SLACK = 70  # MiB beside what is held: what is on its way through, and the allocator's
ODD = range(1, 8001, 2)


@pytest.fixture(scope="module")
def picker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPicker]:
    """A picker that reads bodies, so that it holds them."""
    folder = tmp_path_factory.mktemp("picker")
    with running_picker(folder, f"--max-held-bytes={HELD}MiB", "--body-timeout=30s", config="") as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RunningPicker]:
    """One of a test's own: what a process has once taken it does not always give back."""
    rows = ", ".join(f"{{name: e{n}, address: 127.0.0.1, port: {20_000 + n}}}" for n in range(100))
    flags = (f"--max-held-bytes={HELD}MiB", "--refresh-metrics-interval=10s")
    with running_picker(tmp_path, *flags, config="", endpoints=f"endpoints: [{rows}]\n") as running:
        yield running


@contextlib.asynccontextmanager
async def client(picker: RunningPicker) -> AsyncIterator[Send]:
    """Ask for a pick, over a connection that is there already."""
    async with picker.channel() as channel:
        stub = rpc.ExternalProcessorStub(channel)

        async def send() -> None:
            replies = [reply async for reply in stub.Process(iter([ext_proc_headers(end=True)]))]
            assert "x-gateway-destination-endpoint" in str(replies[0].dynamic_metadata)

        yield send


async def settled(picker: RunningPicker) -> None:
    """Wait until everything that an attack held is let go."""

    async def held() -> float:
        def ask() -> float:
            with urllib.request.urlopen(f"http://127.0.0.1:{picker.metrics_port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            return float(next(line for line in lines if line.startswith("pointsman_held_bytes ")).split()[1])

        return await asyncio.to_thread(ask)

    async def free() -> bool:
        return await held() < 10_000

    await until(free)


@contextlib.asynccontextmanager
async def bounded(picker: RunningPicker, attack: Callable[[], None], *, what: str, within: int) -> AsyncIterator[None]:
    """Attack beside a bystander, and say how much the picker grew at most; the attackers leave when the block ends."""
    before = resident_mib(picker.process.pid)
    async with client(picker) as send:
        async with watched(send):
            await aside(attack)
        grown = resident_mib(picker.process.pid, peak=True) - before
        print(f"{what}: grew by {grown:.0f} MiB at most")
        assert grown < within
        yield
        await settled(picker)


# What is sent is made beforehand: in the middle of the attack that would slow the bystander down, not the picker.
NO_WINDOW = PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 0})
REPEATED = b"".join(headers(n) + data(n, b"\x12\n\n\x08\n\x06\n\x01a\x1a\x011" * 20) for n in (1, 3, 5))
BLOCKED = b"".join(headers(n) + data(n, request_headers(b"/x")) for n in ODD)
SIZES = b"".join(PAIR.pack(Setting.INITIAL_WINDOW_SIZE, n % 2) for n in range(2700))
RESETS = b"".join(headers(n) + reset(n, Code.CANCEL) for n in range(1, 20_001, 2))
BLOWN_UP = gzip.compress(encode_field(100, bytes(4_000_000)))  # a field that nobody reads, in four kilobytes
COMPRESSED = headers(1, encoding="gzip") + data(1, BLOWN_UP, packed=True) * 600
PINGS = frame(FrameKind.PING, 0, 0, b"flooding") * 60_000


def flood(port: int, *pieces: bytes, hello: bytes = PREFACE + settings({})) -> None:
    attacker = Attacker(port, hello=hello)
    attacker.send(pieces)
    time.sleep(0.5)  # it stays for a while: what it sent is worked on
    attacker.close()


def rapid_resets(port: int) -> None:
    """A few long floods, then many short ones, each over a connection of its own."""
    attackers = [Attacker(port) for _ in range(4)]
    for attacker in attackers:
        attacker.send([RESETS])
    for _ in range(20):
        short = Attacker(port)
        short.send([RESETS[: 1 << 18]])
        short.close()
    for attacker in attackers:
        attacker.close()


def pings(port: int) -> None:
    """A flood that is cut off, from peers that go on sending."""
    for _ in range(20):
        attacker = Attacker(port)
        attacker.send([PINGS])
        attacker.close()


ATTACKS: dict[str, Callable[[int], None]] = {
    "a field repeated": lambda port: flood(port, REPEATED),
    "SETTINGS over blocked streams": lambda port: flood(
        port, BLOCKED, *[frame(FrameKind.SETTINGS, 0, 0, SIZES)] * 10, hello=NO_WINDOW
    ),
    "WINDOW_UPDATE over blocked streams": lambda port: flood(
        port, BLOCKED, window_update(0, 1) * 15_000, hello=NO_WINDOW
    ),
    "messages that are large when unpacked": lambda port: flood(port, COMPRESSED, hello=WIDE),
    "rapid resets": rapid_resets,
    "PING": pings,
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nobody_else_waits(picker: RunningPicker, attack: str) -> None:
    async with (
        client(picker) as send,
        watched(send, clients=1),
        watched(lambda: newcomer(picker.grpc_port), clients=1),
    ):
        await aside(lambda: ATTACKS[attack](picker.grpc_port))
    await settled(picker)


async def test_twelve_thousand_aborts_leave_the_others_on_the_same_connection(picker: RunningPicker) -> None:
    """As an Envoy whose clients give up by the thousand: it has one connection for them and for everybody else."""
    body = encode_field(4, encode_field(1, b'{"model": "m", "prompt": "p"}') + b"\x10\x01")
    begun = {n: headers(n) + data(n, request_headers()) for n in range(1, 21, 2)}
    aborted = [headers(n) + data(n, request_headers()) + reset(n, Code.CANCEL) for n in range(21, 24_021, 2)]
    late = [reset(n, Code.CANCEL) for n in range(21, 24_021, 2)]  # of streams that have ended
    envoy = Attacker(picker.grpc_port, hello=WIDE)

    def attack() -> None:
        envoy.send(begun.values())
        for at in range(0, len(aborted), 400):
            envoy.send([*aborted[at : at + 400], *late[at : at + 400]])
        envoy.send(data(n, body) for n in begun)

    async with client(picker) as send, watched(send):
        await aside(attack)
        await until(lambda: envoy.seen.count(b"x-gateway-destination-endpoint") >= 2 * len(begun))
    envoy.close()
    await settled(picker)


PART = request_body(b"x" * 1_000_000)


def large(path: bytes, *, streams: int) -> Iterator[bytes]:
    """Requests that begin with a megabyte and do not end, to a path."""
    return (headers(n) + data(n, request_headers(path)) + data(n, PART) for n in range(1, 2 * streams + 1, 2))


async def test_bodies_that_never_end_are_bounded_and_a_small_request_is_served(fresh: RunningPicker) -> None:
    hogs = [Attacker(fresh.grpc_port) for _ in range(4)]

    def attack() -> None:
        for one in large(b"/v1/completions", streams=80):
            for hog in hogs:
                hog.send([one])

    async with bounded(fresh, attack, what="320 MB of bodies that do not end", within=HELD + SLACK):
        assert any(b"rejected-memory" in hog.seen for hog in hogs), "whoever held most was told why"
        for hog in hogs:
            hog.close()


async def test_replies_that_no_window_lets_out_are_bounded(fresh: RunningPicker) -> None:
    """The body comes back to a peer that takes nothing of it."""
    hogs: list[Attacker] = []

    def attack() -> None:
        for _ in range(4):
            hogs.append(hog := Attacker(fresh.grpc_port, hello=NO_WINDOW))
            hog.send(large(b"/no/such/api", streams=80))

    async with bounded(fresh, attack, what="320 MB of replies that may not leave", within=HELD + SLACK):
        for hog in hogs:
            hog.close()


async def test_replies_that_are_not_read_are_bounded(fresh: RunningPicker) -> None:
    """The same, with windows wide open and a socket that nobody reads."""
    hogs = [Attacker(fresh.grpc_port, hello=WIDE, reads=False) for _ in range(40)]
    for hog in hogs:
        hog.socket.settimeout(0.2)

    def attack() -> None:
        for hog in hogs:
            hog.send(large(b"/no/such/api", streams=10))

    async with bounded(fresh, attack, what="400 MB of replies that are not read", within=HELD + SLACK):
        for hog in hogs:
            hog.close()


async def test_idle_connections_keep_nobody_out(picker: RunningPicker) -> None:
    kept: list[socket.socket] = []

    def attack() -> None:
        for _ in range(1100):
            one = socket.create_connection(("127.0.0.1", picker.grpc_port), timeout=20)
            one.sendall(PREFACE + settings({}))
            kept.append(one)

    async with client(picker) as send:
        async with watched(send):
            await aside(attack)
        async with watched(lambda: newcomer(picker.grpc_port)):
            await send()
    for one in kept:
        one.close()


async def test_pages_that_nobody_reads_are_not_made(fresh: RunningPicker) -> None:
    asked = b"GET /debug/endpoints HTTP/1.1\r\nhost: x\r\n\r\n" * 7000
    readers: list[socket.socket] = []

    def attack() -> None:
        for _ in range(3):
            one = socket.create_connection(("127.0.0.1", fresh.metrics_port), timeout=2)
            readers.append(one)
            with contextlib.suppress(OSError):  # nothing more is taken: that is the defence
                one.sendall(asked)

    async with bounded(fresh, attack, what="21,000 pages that nobody reads", within=SLACK):
        for one in readers:
            one.close()


async def test_metrics_are_read_beside_idle_connections(picker: RunningPicker) -> None:
    kept = [socket.create_connection(("127.0.0.1", picker.metrics_port), timeout=20) for _ in range(400)]
    assert await asyncio.to_thread(picker.get, "/debug/endpoints")
    for one in kept:
        one.close()


async def test_a_body_that_does_not_end_is_answered_in_time(tmp_path: Path) -> None:
    with running_picker(tmp_path, "--body-timeout=500ms", config="") as picker:
        hog = Attacker(picker.grpc_port)
        hog.send([headers(1) + data(1, request_headers()) + data(1, request_body(b"x" * 1000))])
        await until(lambda: b"--body-timeout" in hog.seen)
        hog.close()
        await settled(picker)

"""A faulty road between a client and the API server: an HTTP/1.1 proxy that tests make misbehave on command.

It passes everything on to the real server (adding nothing but TLS) and counts what it saw. Faults are rules
over the request; each answers itself, or bends the stream of lines that comes back. The API server behind it
stays the real one.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx2
from tests.cluster.controlplane import ControlPlane


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way."""

    method: str
    target: str

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def watch(self) -> bool:
        return "watch=1" in self.target


class Cut(Exception):
    """End the connection after these bytes."""

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__()
        self.rest = rest


Refuse = Callable[[Call], tuple[int, dict[str, str], bytes] | None]
Bend = Callable[[Call, bytes], Awaitable[bytes]]


@dataclass(slots=True)
class Road:
    """What the proxy does, changeable at any time."""

    refuse: Refuse | None = None
    bend: Bend | None = None
    closed: bool = False
    calls: list[Call] = field(default_factory=list)
    answers: list[tuple[Call, int]] = field(default_factory=list)
    server: str = ""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """Reset every connection that is open."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def close(self) -> None:
        """Refuse connections until `open`, and reset those that are there."""
        self.closed = True
        self.cut()

    def open(self) -> None:
        """Let connections through again."""
        self.closed = False

    def count(self, namespace: str = "") -> Counter[str]:
        """Return how many requests there were by method, watches apart; those of one namespace if it is named.

        Objects of earlier tests may still be going away, so a test counts in its own namespace.
        """
        seen = [call for call in self.calls if f"/namespaces/{namespace}" in call.path or not namespace]
        return Counter("WATCH" if call.watch else call.method for call in seen)


@asynccontextmanager
async def road_to(plane: ControlPlane) -> AsyncIterator[Road]:
    """Open a proxy to the plane's API server while the block runs."""
    road = Road()
    verify = ssl.create_default_context(cafile=plane.directory / "ca.crt")
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        base_url=plane.server, verify=verify, limits=limits, timeout=httpx2.Timeout(30, read=None)
    ) as upstream:

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            road._writers.add(writer)
            try:
                while not road.closed:
                    await _pass_on(reader, writer, road=road, upstream=upstream)
            except (OSError, Cut, asyncio.IncompleteReadError, httpx2.HTTPError):
                pass
            finally:
                road._writers.discard(writer)
                writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        road.server = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield road
        finally:
            server.close()
            road.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await server.wait_closed()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, road: Road, upstream: httpx2.AsyncClient
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, _ = head.split("\r\n", 1)[0].split(" ")
    pairs = [line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line]
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.pop("content-length", "0")))
    call = Call(method, target)
    road.calls.append(call)
    refusal = road.refuse(call) if road.refuse else None
    if refusal is not None:
        code, extra, answer = refusal
        writer.write(_head(code, {**extra, "content-length": str(len(answer))}) + answer)
        await writer.drain()
        return
    kept: dict[str, str] = {
        name: headers[name] for name in ("accept", "authorization", "content-type") if name in headers
    }
    kept["accept-encoding"] = "identity"
    async with upstream.stream(method, target, headers=kept, content=body or None) as answered:
        fields = {"content-type": answered.headers.get("content-type", ""), "transfer-encoding": "chunked"}
        road.answers.append((call, answered.status_code))
        if "retry-after" in answered.headers:
            fields["retry-after"] = answered.headers["retry-after"]
        writer.write(_head(answered.status_code, fields))
        async for piece in _pieces(answered, call):
            try:
                sent = await road.bend(call, piece) if road.bend else piece
            except Cut as cut:
                writer.write(_chunk(cut.rest))
                await writer.drain()
                raise
            writer.write(_chunk(sent))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _pieces(answered: httpx2.Response, call: Call) -> AsyncIterator[bytes]:
    """Give a watch line by line, so that a fault can strike at an event."""
    if not call.watch:
        async for piece in answered.aiter_raw():
            yield piece
        return
    rest = b""
    async for piece in answered.aiter_raw():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b""


def _head(code: int, fields: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} -", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")

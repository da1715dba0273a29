"""The connections below httpx, against a server whose every byte a test chooses."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from pointsman.core.certificates import self_signed
from pointsman.kube.transport import Transport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Return a whole request: its head, and as much body as that announces."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(size)


class Stage:
    """A server that follows a script per connection, and a client of it."""

    def __init__(self, tls: ssl.SSLContext | None, *, idle: float = 60.0) -> None:
        self.http = httpx2.AsyncClient(transport=Transport(tls=tls, idle=idle), timeout=5)
        self.connections = 0
        self.requests: list[bytes] = []
        self.script: Script = self.say(OK)

    def say(self, *pieces: bytes, then_close: bool = False) -> Script:
        """Return the script that answers each request with these bytes, a piece at a time."""

        async def follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                self.requests.append(await read_request(reader))
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0)
                if then_close:
                    return

        return follow

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    made = Stage(None, idle=getattr(request, "param", 60.0))
    server = await asyncio.start_server(made.follow, "127.0.0.1", 0)
    made.http.base_url = httpx2.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, made.http:
        yield made


async def test_one_connection_serves_one_request_after_the_other(stage: Stage) -> None:
    for number in range(3):
        answer = await stage.http.put("/a", params={"n": str(number)}, content=b"body", headers={"x-a": "b"})
        assert (answer.status_code, answer.content) == (200, b"ok")
    assert stage.connections == 1
    assert stage.requests[2].startswith(b"PUT /a?n=2 HTTP/1.1\r\n")
    assert b"x-a: b\r\n" in stage.requests[2]
    assert stage.requests[2].endswith(b"\r\n\r\nbody")


async def test_requests_at_once_have_a_connection_each_and_keep_them(stage: Stage) -> None:
    for _ in range(2):
        answers = await asyncio.gather(*(stage.http.get("/") for _ in range(20)))
        assert {answer.content for answer in answers} == {b"ok"}
    assert stage.connections == 20


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
    ids=["length", "chunked", "continue"],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_answers_may_come_in_any_pieces(stage: Stage, answer: bytes, size: int) -> None:
    stage.script = stage.say(*(answer[at : at + size] for at in range(0, len(answer), size)))
    for _ in range(2):
        assert (await stage.http.get("/")).content == b"ok"
    assert stage.connections == 1


async def test_compressed_answers_are_read(stage: Stage) -> None:
    packed = gzip.compress(b"many words " * 1000)
    stage.script = stage.say(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed), packed
    )
    assert (await stage.http.get("/")).content == b"many words " * 1000


async def test_server_that_closes_gets_a_new_connection(stage: Stage) -> None:
    stage.script = stage.say(OK, then_close=True)
    for _ in range(3):
        assert (await stage.http.get("/")).content == b"ok"
        await asyncio.sleep(0.02)  # until it is seen
    assert stage.connections == 3


async def test_server_that_says_close_gets_a_new_connection(stage: Stage) -> None:
    stage.script = stage.say(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
    for _ in range(2):
        assert (await stage.http.get("/")).content == b"ok"
    assert stage.connections == 2


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nno end is said",
    ],
)
async def test_half_an_answer_is_none(stage: Stage, cut: bytes) -> None:
    stage.script = stage.say(cut, then_close=True)
    with pytest.raises(httpx2.ReadError, match="closed the connection"):
        await stage.http.get("/")


async def test_what_is_not_http_is_an_error(stage: Stage) -> None:
    stage.script = stage.say(b"220 mail.example ESMTP\r\n")
    with pytest.raises(httpx2.ReadError, match="not HTTP"):
        await stage.http.get("/")


async def test_head_without_end_is_given_up(stage: Stage) -> None:
    stage.script = stage.say(b"HTTP/1.1 200 OK\r\n", *[b"a: b\r\n" * 1000] * 50)
    with pytest.raises(httpx2.ReadError, match="head of its answer is larger than 65536 bytes"):
        await stage.http.get("/")


@pytest.mark.parametrize("pieces", [(OK + OK,), (OK, OK)])
async def test_answer_that_nobody_asked_for_ends_the_connection(stage: Stage, pieces: tuple[bytes, ...]) -> None:
    stage.script = stage.say(*pieces)
    assert (await stage.http.get("/")).content == b"ok"
    await asyncio.sleep(0.02)
    stage.script = stage.say(OK.replace(b"ok", b"to"))
    assert (await stage.http.get("/")).content == b"to"
    assert stage.connections == 2


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok"])
async def test_silence_has_a_limit(stage: Stage, said: bytes) -> None:
    stage.script = stage.say(said)
    with pytest.raises(httpx2.ReadTimeout, match=r"nothing came within 0\.05 s"):
        await stage.http.get("/", timeout=0.05)
    stage.script = stage.say(OK)
    assert (await stage.http.get("/")).content == b"ok"


async def test_nobody_there(stage: Stage) -> None:
    with pytest.raises(httpx2.ConnectError):
        await stage.http.get("http://127.0.0.1:1/")


async def test_reader_that_leaves_early_hangs_up(stage: Stage) -> None:
    left = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        await reader.read()
        left.set()

    stage.script = endless
    async with stage.http.stream("GET", "/") as answer:
        assert await anext(answer.aiter_bytes()) == b"ok"
    async with asyncio.timeout(5):
        await left.wait()


async def test_cancelled_request_hangs_up(stage: Stage) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()
        left.set()

    stage.script = silent
    request = asyncio.ensure_future(stage.http.get("/"))
    await asked.wait()
    request.cancel()
    async with asyncio.timeout(5):
        await left.wait()


async def test_answer_that_is_not_read_waits_at_the_server(stage: Stage) -> None:
    size, sent = 64 << 20, 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * (1 << 16))
            await writer.drain()
            sent += 1 << 16

    stage.script = pour
    async with stage.http.stream("GET", "/") as answer:
        await asyncio.sleep(0.3)
        assert sent < size // 2
        assert sum([len(piece) async for piece in answer.aiter_bytes()]) == size


@pytest.mark.parametrize("stage", [0.0], indirect=True)
async def test_connection_that_rested_long_is_not_trusted(stage: Stage) -> None:
    await stage.http.get("/")
    await stage.http.get("/")
    assert stage.connections == 2


@pytest.mark.parametrize("stage", [0.3], indirect=True)
async def test_connections_that_a_burst_left_go_when_nobody_needs_them(stage: Stage) -> None:
    left = asyncio.Semaphore(0)

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await stage.say(OK)(reader, writer)
        finally:
            left.release()

    stage.script = counted
    await asyncio.gather(*(stage.http.get("/") for _ in range(5)))
    for _ in range(6):  # by one of them, which never rests for long
        await asyncio.sleep(0.1)
        await stage.http.get("/")
    async with asyncio.timeout(5):
        for _ in range(4):
            await left.acquire()


async def test_what_is_given_back_after_the_end_is_closed(stage: Stage) -> None:
    left = asyncio.Event()

    async def watched(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await reader.read()
        left.set()

    stage.script = watched
    async with stage.http.stream("GET", "/") as answer:
        await stage.http.aclose()
        assert await answer.aread() == b"ok"
    async with asyncio.timeout(5):
        await left.wait()


async def test_certificates_are_checked(tmp_path: Path) -> None:
    for name, data in zip(("crt", "key"), self_signed(), strict=True):
        (tmp_path / name).write_bytes(data)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    stage = Stage(ssl.create_default_context())
    server = await asyncio.start_server(stage.follow, "127.0.0.1", 0, ssl=server_side)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, stage.http:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await stage.http.get(url)
        lenient = ssl._create_unverified_context()
        async with httpx2.AsyncClient(transport=Transport(tls=lenient)) as http:
            assert (await http.get(url)).content == b"ok"

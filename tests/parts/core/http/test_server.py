"""The HTTP server over real loopback sockets, with polite and hostile peers."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from functools import partial

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.waiting import until

from pointsman.core.budget import Budget
from pointsman.core.errors import PortTaken
from pointsman.core.http import Limits, Listener, Request, Response, Server, Stream, header_lines

LIMITS = Limits(body_bytes=1000, head_bytes=2000, request_seconds=0.2, linger_seconds=0.2, pipelined=4)


class App:
    """A handler with one route per way of answering."""

    def __init__(self) -> None:
        self.held: list[Request] = []
        self.gone: list[str] = []
        self.stream: Stream | None = None

    def __call__(self, request: Request) -> Response | Awaitable[Response | None] | None:
        match request.path:
            case "/now":
                return Response(body=request.body or request.query, headers=header_lines({"x-a": "b"}))
            case "/busy":
                time.sleep(0.0005)  # as a handler that has something to do
                return Response(body=request.query)
            case "/later":
                return self.later(request)
            case "/held":
                self.held.append(request)
                request.on_disconnect = lambda: self.gone.append(request.path)
                return None
            case "/stream":
                self.stream = request.stream()
                request.on_disconnect = lambda: self.gone.append(request.path)
                return None
            case "/broken":
                raise RuntimeError("on purpose")
            case "/none":
                return Response(204, content_type=b"")
        return Response(404, b"{}")

    async def later(self, request: Request) -> Response:
        try:
            await asyncio.sleep(float(request.query or b"0"))
        except asyncio.CancelledError:
            self.gone.append(request.path)
            raise
        return Response(body=b"later")


@pytest.fixture
async def app() -> App:
    return App()


@pytest.fixture
async def listener(app: App) -> AsyncIterator[Listener]:
    async with Server() as server:
        yield await server.listen(app, host="127.0.0.1", port=0, limits=LIMITS)


async def exchange(listener: Listener, data: bytes, *, seconds: float = 3.0) -> bytes:
    """Send the bytes and return everything until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), seconds)
    finally:
        writer.close()


async def test_answers_in_the_order_of_pipelined_requests(listener: Listener) -> None:
    answer = await exchange(
        listener,
        b"POST /later?0.05 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        b"POST /now HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
        b"GET /now?q HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    assert [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"later",
        b"abc",
        b"q",
    ]
    assert b"connection: close" in answer


async def test_more_pipelined_requests_than_we_hold_are_all_answered(listener: Listener) -> None:
    many = b"GET /later?0.001 HTTP/1.1\r\nhost: x\r\n\r\n" * 40
    answer = await exchange(listener, many + b"GET /now HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 41


async def test_keep_alive_head_and_chunked_body(listener: Listener) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cd"

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}") as client:
        assert (await client.post("/now", content=pieces())).content == b"abcd"
        head = await client.head("/now", params={"x": "y"})
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "3", b"")
        assert head.headers["x-a"] == "b" and "date" in head.headers
        assert (await client.get("/none")).status_code == 204
        assert (await client.get("/broken")).status_code == 500
        assert len(listener.peers()) == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="a TLS hello"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"GET /now\r\n\r\n", 505, id="HTTP/0.9"),
        pytest.param(b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 431, id="long target"),
        pytest.param(b"GET /now HTTP/1.1\r\n" + b"a: b\r\n" * 2000 + b"\r\n", 431, id="many fields"),
        pytest.param(b"POST /now HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", 413, id="declared too large"),
        pytest.param(
            b"POST /now HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + (b"1f4\r\n" + b"x" * 500 + b"\r\n") * 3,
            413,
            id="chunks too large",
        ),
        pytest.param(
            b"POST /now HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="smuggling: both lengths",
        ),
        pytest.param(b"POST /now HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, id="negative length"),
        pytest.param(b"POST /now HTTP/1.1\r\ncontent-length: " + b"9" * 1500 + b"\r\n\r\n", 400, id="huge length"),
        pytest.param(b"POST /now HTTP/1.1\r\ncontent-length: " + b"0" * 1500 + b"\r\n\r\n", 413, id="padded length"),
        pytest.param(b"POST /now HTTP/1.1\r\nexpect: pigs\r\ncontent-length: 1\r\n\r\n", 417, id="expectation"),
        pytest.param(b"POST /now HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc", 408, id="slow loris"),
    ],
)
async def test_refuses_what_breaks_the_protocol(listener: Listener, data: bytes, status: int) -> None:
    answer = await exchange(listener, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer


async def test_a_fault_behind_good_requests_is_answered_last(listener: Listener) -> None:
    answer = await exchange(listener, b"GET /later?0.02 HTTP/1.1\r\nhost: x\r\n\r\nrubbish\r\n\r\n")
    assert answer.index(b"200 OK") < answer.index(b"400 Bad Request")


async def test_continue_is_sent_only_where_the_body_is_welcome(listener: Listener) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"POST /now HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(b"ok")
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    big = b"POST /now HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2000\r\n\r\n"
    assert (await exchange(listener, big)).startswith(b"HTTP/1.1 413 ")


async def test_streams_are_written_from_outside_and_keep_the_connection(listener: Listener, app: App) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\nGET /now?next HTTP/1.1\r\nhost: x\r\n\r\n")
    await until(lambda: app.stream)
    assert app.stream is not None
    app.stream.write(b"one")
    app.stream.write(b"two")
    app.stream.end(b"end")
    app.stream.write(b"after the end")
    answer = await reader.readuntil(b"next")
    assert b"transfer-encoding: chunked\r\n" in answer
    assert b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n3\r\nend\r\n0\r\n\r\nHTTP/1.1 200 OK" in answer
    writer.close()


async def test_http_1_0_gets_an_unchunked_stream_that_ends_with_the_connection(listener: Listener, app: App) -> None:
    waiting = asyncio.ensure_future(exchange(listener, b"GET /stream HTTP/1.0\r\n\r\n"))
    await until(lambda: app.stream)
    assert app.stream is not None
    app.stream.write(b"one")
    app.stream.end(b"two")
    answer = await waiting
    assert answer.endswith(b"\r\n\r\nonetwo") and b"chunked" not in answer


@pytest.mark.parametrize("path", ["/held", "/stream", "/later?9"])
async def test_a_peer_that_leaves_is_noticed(listener: Listener, app: App, path: str) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await until(lambda: listener.peers() and listener.peers()[0].connection.current)
    await asyncio.sleep(0.01)
    writer.close()
    await until(lambda: app.gone)
    assert app.gone == [path.partition("?")[0]]
    for request in app.held:
        assert not request.connected
        request.respond(Response())  # a late answer harms nobody


async def test_a_peer_that_does_not_read_is_noticed_and_in_the_end_cut_off(app: App) -> None:
    async with Server() as server:
        listener = await server.listen(app, host="127.0.0.1", port=0, limits=Limits(unread_seconds=0.2))
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1000)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: app.stream)
        assert app.stream is not None
        for _ in range(5000):
            if app.stream.choked:
                break
            app.stream.write(b"x" * 10_000)
            await asyncio.sleep(0)
        assert app.stream.open
        await until(lambda: app.gone)
        assert not listener.peers()
        writer.close()


async def test_a_peer_that_reads_slowly_is_left_alone(app: App) -> None:
    async with Server() as server:
        listener = await server.listen(app, host="127.0.0.1", port=0, limits=Limits(unread_seconds=1.2))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1000)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: app.stream)
        assert app.stream is not None
        for _ in range(3000):
            app.stream.write(b"x" * 10_000)
        for _ in range(30):  # longer than it may take nothing, and too little to be done
            await asyncio.sleep(0.1)
            for _ in range(5):
                await reader.read(100_000)
        assert app.stream.choked and not app.gone
        writer.close()


async def test_no_answer_is_made_for_a_peer_that_has_not_read_the_one_before() -> None:
    made = 0

    def page(_request: Request) -> Response:
        nonlocal made
        made += 1
        return Response(body=b"x" * 500_000)

    async with Server() as server:
        listener = await server.listen(page, host="127.0.0.1", port=0)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1000)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 500)
        await until(lambda: server.budget.held)
        before = -1
        while made != before:  # until the kernel's buffers take no more either
            before = made
            await asyncio.sleep(0.3)
        assert made < 30, "what the sockets take, and no more"
        assert server.budget.held < 2_000_000
        seen = 0
        async with asyncio.timeout(20):
            while seen < 500 * 500_000:
                seen += len(await reader.read(1 << 20))
        assert made == 500, "all of them when it reads"
        await until(lambda: not server.budget.held)
        writer.close()


async def test_bodies_beyond_the_budget_are_503_and_a_small_one_is_served(app: App) -> None:
    async with Server(budget=Budget(limit=1_000_000)) as server:
        listener = await server.listen(app, host="127.0.0.1", port=0)
        head = b"POST /now HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n"
        hogs = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
        for number, (_, writer) in enumerate(hogs):
            writer.write(head + b"x" * (400_000 + number))
            least = 400_000 * min(number + 1, 2)
            await until(partial(lambda held: server.budget.held >= held, least))
        gone = await asyncio.wait_for(hogs[0][0].read(), 3)
        assert gone.startswith(b"HTTP/1.1 503 ") and b"try again later" in gone
        small = await exchange(listener, b"POST /now HTTP/1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        assert small.endswith(b"hi")
        for _, writer in hogs:
            writer.close()
        await until(lambda: not listener.peers())
        assert server.budget.held == 0


async def test_the_one_that_idled_longest_makes_room(app: App) -> None:
    async with Server() as server:
        listener = await server.listen(app, host="127.0.0.1", port=0, limits=Limits(connections=3))
        busy, oldest, other = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
        busy[1].write(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: app.held)
        assert b"204" in await exchange(listener, b"GET /none HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert await asyncio.wait_for(oldest[0].read(), 3) == b"", "closed"
        app.held[0].respond(Response(body=b"still here"))
        assert b"still here" in await busy[0].read(1000) or b"still here" in await busy[0].read(1000)
        for _, writer in (busy, other):
            writer.close()


async def test_headers_that_repeat_are_joined_in_linear_time(listener: Listener) -> None:
    seen: list[bytes] = []

    def handler(request: Request) -> Response:
        seen.append(request.headers[b"a"])
        return Response()

    listener.handler = handler
    lines = b"".join(b"a: %d\r\n" % n for n in range(100))
    await exchange(listener, b"GET / HTTP/1.1\r\n" + lines + b"connection: close\r\n\r\n")
    assert seen == [b", ".join(b"%d" % n for n in range(100))]


async def test_a_burst_is_answered_in_full_while_everything_else_goes_on(listener: Listener) -> None:
    async def one(number: int) -> bytes:
        close = b"connection: close\r\n"
        asked = [b"GET /busy?%d-%d HTTP/1.1\r\nhost: x\r\n" % (number, i) for i in range(3)]
        return await exchange(listener, b"\r\n".join([*asked[:2], asked[2] + close]) + b"\r\n", seconds=20)

    async def leave() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /busy?gone HTTP/1.1\r\nhost: x\r\n\r\n")
        writer.transport.abort()

    began, rounds = asyncio.ensure_future(asyncio.gather(*(one(number) for number in range(60)))), 0
    await asyncio.gather(*(leave() for _ in range(20)))
    while not began.done():
        await asyncio.sleep(0)
        rounds += 1
    for number, answer in enumerate(await began):
        bodies = [part.rpartition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert bodies == [b"%d-%d" % (number, i) for i in range(3)]
    assert rounds > 30  # at two requests per slice it takes at least that many


async def test_draining_finishes_open_answers_and_refuses_new_connections(listener: Listener, app: App) -> None:
    open_answer = asyncio.ensure_future(exchange(listener, b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n"))
    _, idle = await asyncio.open_connection("127.0.0.1", listener.port)
    await until(lambda: app.held and len(listener.peers()) == 2)
    draining = asyncio.ensure_future(listener.drain(seconds=2))
    await until(lambda: len(listener.peers()) == 1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    app.held[0].respond(Response(body=b"done"))
    answer = await open_answer
    assert b"connection: close" in answer and answer.endswith(b"done")
    await draining
    idle.close()


async def test_a_taken_port_is_one_clear_sentence(listener: Listener, app: App) -> None:
    with pytest.raises(PortTaken, match=str(listener.port)):
        await listener.server.listen(app, host="127.0.0.1", port=listener.port)


async def test_an_upgrade_is_answered_as_plain_http(listener: Listener) -> None:
    answer = await exchange(
        listener, b"GET /now?x HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\nignored"
    )
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"\r\n\r\nx")


def test_a_header_cannot_break_out_of_its_line() -> None:
    with pytest.raises(ValueError, match="line break"):
        header_lines({"x-request-id": "a\r\nset-cookie: b"})


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([b"GET / HTTP/1.1\r\n", b"\r\n", b"host: x\r\n", b"content-length: 5\r\n", b"5\r\n"]),
            st.just(b"POST /now HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        max_size=12,
    )
)
def test_fuzz_any_bytes_leave_the_server_serving(data: list[bytes]) -> None:
    async def run() -> None:
        async with Server() as server:
            listener = await server.listen(App(), host="127.0.0.1", port=0, limits=LIMITS)
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            for piece in data:
                writer.write(piece)
            writer.close()
            good = await exchange(listener, b"GET /now?ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert good.endswith(b"ok")

    asyncio.run(run())

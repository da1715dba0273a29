"""Real sockets on loopback: a good endpoint is asked on time whatever the others do."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from pointsman.core.certificates import self_signed
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Member, Pool
from pointsman.epp.sources.models import ModelsQuestion
from pointsman.epp.sources.scrape import MetricsQuestion, Scraper, ScrapeTerms

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """An endpoint with a page and a bad habit."""

    def __init__(self, habit: str = "") -> None:
        self.habit = habit
        self.asked = 0
        self.connections = 0
        self.waiting = 0
        self.port = 0

    def page(self) -> bytes:
        body = f"vllm:num_requests_waiting {self.waiting}\nvllm:num_requests_running 1\n".encode()
        if self.habit == "nonsense":
            body = b"<html></html>"
        if self.habit == "models":
            body = b'{"data":[{"id":"m"}]}'
        if self.habit == "until-close":
            return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
        if self.habit == "chunked":
            middle = len(body) // 2
            pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:middle], body[middle:]))
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
        status = b"404 Not Found" if self.habit == "404" else b"500 Oops" if self.habit == "500" else b"200 OK"
        ending = b"Connection: close\r\n" if self.habit == "one-shot" else b""
        return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, ending, len(body), body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                await self.answer(writer)
                if self.habit in {"one-shot", "until-close", "hang-up"}:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, writer: asyncio.StreamWriter) -> None:
        if self.habit == "hang":
            await asyncio.sleep(60)
        elif self.habit == "flood":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 300_000)
        elif self.habit == "garbage":
            writer.write(b"\x00\x01\x02 not http\r\n\r\n")
        elif self.habit == "twice":
            writer.write(self.page() + self.page())
        elif self.habit == "drip":
            for byte in self.page():
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.001)
        elif self.habit != "hang-up":
            writer.write(self.page())
        await writer.drain()


@asynccontextmanager
async def scraping(
    *servers: Server, terms: ScrapeTerms | None = None, tls: ssl.SSLContext | None = None, models: bool = False
) -> AsyncIterator[tuple[Pool, Polls]]:
    tally, pool, listeners = Polls(), Pool(), []
    for server in servers:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        listeners.append(listener)
        if server.habit == "dead":
            listener.close()
            await listener.wait_closed()
    terms = terms or ScrapeTerms(interval=0.01, answer_seconds=0.2, connect_seconds=0.2, max_bytes=100_000)
    question = ModelsQuestion(tally=tally) if models else MetricsQuestion(tally=tally)
    scraper = Scraper(question, terms=terms, tally=tally, clock=time.monotonic)
    pool.watch(scraper.follow)
    pool.replace([Endpoint(name=s.habit or "good", address="127.0.0.1", port=s.port) for s in servers])
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(scraper.run())
            yield pool, tally
            task.cancel()
    finally:
        for listener in listeners:
            listener.close()


def read(member: Member) -> bool:
    return member.metrics.updated_at is not None


@pytest.mark.parametrize("habit", ["", "chunked", "one-shot", "until-close", "drip"])
async def test_every_proper_way_to_answer_is_understood(habit: str) -> None:
    server = Server(habit)
    server.waiting = 4
    patient = ScrapeTerms(interval=0.01, answer_seconds=30)  # a drip takes its time, on a busy machine even more
    async with scraping(server, terms=patient) as (pool, tally):
        (member,) = pool.members
        await until(lambda: server.asked >= 3)
        assert read(member)
        assert (member.view.waiting, member.view.running) == (4, 1)
        server.waiting = 6
        await until(lambda: member.view.waiting == 6)
        assert tally.poll_errors.total() == 0
        assert (server.connections == 1) == (habit in {"", "chunked", "drip"})


@pytest.mark.parametrize("habit", ["hang", "dead", "flood", "garbage", "twice", "hang-up", "404", "500", "nonsense"])
async def test_a_bad_endpoint_costs_the_others_nothing(habit: str) -> None:
    good, bad = Server(), Server(habit)
    async with scraping(good, bad) as (pool, tally):
        await until(lambda: tally.poll_errors.total() >= 1)
        before = good.asked
        await until(lambda: good.asked >= before + 10)
        assert read(pool.members[0])
        assert pool.members[0].answers_scrapes
        assert bad.asked <= good.asked


async def test_who_keeps_failing_is_asked_less_and_less() -> None:
    good, bad = Server(), Server("404")
    async with scraping(good, bad):
        await until(lambda: good.asked >= 30)
        assert 1 <= bad.asked <= good.asked / 3


@pytest.mark.parametrize(("habit", "there"), [("404", True), ("nonsense", True), ("500", False), ("hang-up", False)])
async def test_who_answers_anything_is_there(habit: str, there: bool) -> None:
    async with scraping(Server(habit)) as (pool, tally):
        await until(lambda: tally.poll_errors.total() >= 1)
        assert pool.members[0].answers_scrapes == there


async def test_what_one_source_hears_says_nothing_of_another() -> None:
    alive, gone = Server(), Server("dead")
    async with scraping(alive, gone) as (pool, tally):
        (member, _), elsewhere = pool.members, ScrapeTerms(interval=0.01, port=gone.port)
        other = Scraper(ModelsQuestion(tally=tally), terms=elsewhere, tally=tally, clock=time.monotonic)
        stop = pool.watch(other.follow)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(other.run())
            await until(lambda: tally.poll_errors[ModelsQuestion.source] >= 3)
            before = alive.asked
            await until(lambda: alive.asked >= before + 3)
            failures = member.scrape_failures
            assert (failures[MetricsQuestion.source], failures[ModelsQuestion.source] > 0) == (0, True)
            assert member.answers_scrapes, "it is there at all"
            stop()
            task.cancel()
        assert ModelsQuestion.source not in member.scrape_failures, "who asks no more says nothing"


async def test_an_endpoint_that_comes_back_is_read_again() -> None:
    server = Server("hang")
    async with scraping(server) as (pool, tally):
        await until(lambda: tally.poll_errors.total() >= 1)
        assert pool.members[0].scrape_failures[MetricsQuestion.source] >= 1
        server.habit = ""
        await until(lambda: read(pool.members[0]))
        assert pool.members[0].answers_scrapes


async def test_endpoints_come_and_go() -> None:
    first, second = Server(), Server()
    async with scraping(first, second) as (pool, _):
        await until(lambda: all(map(read, pool.members)))
        kept, gone = pool.members
        pool.replace([kept.endpoint])
        await asyncio.sleep(0.05)
        asked, updated = second.asked, gone.metrics.updated_at
        seen = first.asked
        await until(lambda: first.asked >= seen + 5)
        assert (second.asked, gone.metrics.updated_at) == (asked, updated)
        assert first.connections == 1


async def test_https_with_a_certificate_that_is_not_checked(tmp_path: Path) -> None:
    certificate, key = self_signed()
    (tmp_path / "crt").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.verify_mode = ssl.CERT_NONE
    async with scraping(Server(), terms=ScrapeTerms(interval=0.01, tls=asking), tls=serving) as (pool, _):
        await until(lambda: read(pool.members[0]))


async def test_models_are_read_the_same_way() -> None:
    async with scraping(Server("models"), models=True) as (pool, _):
        await until(lambda: pool.members[0].models == {"m"})

"""A picker's live page over its port: files, stream, bounds, and who is told what."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.parts.epp.test_server import replace, running
from tests.waiting import until

from pointsman.core.http import limits
from pointsman.epp import server
from pointsman.epp.page.live import MOST_PICKS, MOST_VIEWERS
from pointsman.epp.request.request import Request
from pointsman.epp.server import PickerServer

CONFIG = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {type: queue-scorer}\n"


@pytest.fixture
def endpoints(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.yaml"
    rows = [f"{{name: pod-{n}, address: 127.0.0.1, port: {n}}}" for n in (1, 2, 3)]
    path.write_text(f"endpoints: [{', '.join(rows)}]\n")
    return path


def direct(picker: PickerServer, *, times: int = 1) -> None:
    for number in range(times):
        picker.parts.director.direct(Request(id=f"r{number}", headers={}, model="m", target_model="m"))


@asynccontextmanager
async def client(picker: PickerServer) -> AsyncIterator[httpx.AsyncClient]:
    address = f"http://127.0.0.1:{picker.metrics_port}"
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=20) as http:
        yield http


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    async for line in lines:
        if line:
            assert line.startswith("data: ")
            yield json.loads(line.removeprefix("data: "))


async def test_the_page_and_everything_that_it_loads(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker, client(picker) as http:
        page = await http.get("/")
        assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        wanted = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page.text))
        for name in tuple(wanted):
            text = (await http.get(f"/{name}")).text
            wanted |= {f"page/{other}" for other in re.findall(r'from "\./([^"]+)"', text)}
        assert len(wanted) > 8
        for name in wanted:
            answer = await http.get(f"/{name}")
            assert answer.status_code == 200, name
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text), f"{name} knows another site"
            assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(", answer.text), name


async def test_everything_then_what_changes(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints, config_text=CONFIG) as picker, client(picker) as http:
        director = picker.parts.director
        direct(picker)
        assert director.explain_next == 0
        async with http.stream("GET", "/debug/live") as stream:
            heard = messages(stream.aiter_lines())
            first = await anext(heard)
            assert [row[0] for row in first["endpoints"]] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
            assert first["totals"]["picked"] == 1 and "queue-scorer" in first["config"]["text"]
            direct(picker, times=3 * MOST_PICKS)
            while not (told := await anext(heard)).get("picks"):
                pass
            assert len(told["picks"]) == MOST_PICKS and told["more"] == 2 * MOST_PICKS
            assert all(pick["bars"] for pick in told["picks"])
            assert "config" not in told and "instance" not in told
            number = told["picks"][-1]["number"]
            whole = (await http.get(f"/debug/pick?number={number}")).json()
            assert whole["explain"]["profiles"]["default"]["weights"] == {"queue-scorer": 1.0}
            assert "pointsman_page_viewers 1\n" in (await http.get("/metrics")).text
        await until(lambda: not picker.page.live.viewers and director.explain_next == 0)
        assert (await http.get(f"/debug/pick?number={number}")).status_code == 404


async def test_at_most_four_messages_a_second_and_a_word_every_second(endpoints: Path) -> None:
    async with (
        running(endpoints_file=endpoints) as picker,
        client(picker) as http,
        http.stream("GET", "/debug/live") as stream,
    ):
        heard = messages(stream.aiter_lines())
        began = await anext(heard)
        for _ in range(8):
            direct(picker)
            last = await anext(heard)
        assert last["now"] - began["now"] >= 8 * 0.2
        quiet = await anext(heard)  # a message although nothing is picked any more
        assert quiet["now"] > last["now"]


async def test_without_a_viewer_nothing_is_traced_or_kept(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker:
        direct(picker, times=5)
        assert all(record.trace is None for record in picker.parts.director.records.find())
        assert picker.parts.director.records._listeners == []


async def knock(picker: PickerServer) -> tuple[bytes, asyncio.StreamWriter]:
    """Ask for the stream; return the answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", picker.metrics_port)
    writer.write(b"GET /debug/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return await reader.readuntil(b"\r\n\r\n"), writer


async def test_a_thousand_viewers_are_bounded_and_told_so(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker, client(picker) as http:
        watching = [await knock(picker) for _ in range(MOST_VIEWERS)]
        assert all(b" 200 " in head for head, _ in watching)
        for _ in range(1000 - MOST_VIEWERS):
            head, writer = await knock(picker)
            assert b" 503 " in head and b"retry-after: " in head
            writer.close()
        answer = await http.get("/debug/live")
        assert answer.status_code == 503 and "close one" in answer.json()["problem"]
        page = (await http.get("/metrics")).text
        assert f"pointsman_page_viewers {MOST_VIEWERS}\n" in page
        assert f"pointsman_page_refused_total {1001 - MOST_VIEWERS}\n" in page
        watching.pop()[1].close()
        await until(lambda: picker.page.live.viewers == MOST_VIEWERS - 1)
        async with http.stream("GET", "/debug/live") as stream:
            assert stream.status_code == 200
        for _, writer in watching:
            writer.close()


async def test_a_viewer_that_never_reads_holds_little_and_is_cut_off(
    endpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{{name: {'n' * 100}-{n}, address: 127.0.0.1, port: {n + 1}}}" for n in range(2000)]
    replace(endpoints, f"endpoints: [{', '.join(rows)}]\n")
    monkeypatch.setattr(server, "_METRICS_LIMITS", limits.Limits(unread_seconds=2.0))
    config = f"{CONFIG}dataLayer: {{injectDefaults: false}}\n"  # nobody is scraped
    async with running(endpoints_file=endpoints, config_text=config) as picker:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", picker.metrics_port))
            await loop.sock_sendall(deaf, b"GET /debug/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: picker.page.live.viewers == 1)
            held = 0
            while picker.page.live.viewers:
                for member in picker.parts.pool.members:
                    member.enter()
                held = max(held, picker.parts.budget.held)
                await asyncio.sleep(0.1)
        assert held < 4 << 20


async def test_a_stranger_cannot_read_through_a_name_of_his(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker, client(picker) as http:

        async def status(path: str, host: str) -> int:
            return (await http.get(path, headers={"host": host})).status_code

        for path in ("/", "/debug/endpoints", "/debug/pick"):
            assert await status(path, "stranger.example:9090") == 421
        assert await status("/metrics", "picker.example") == await status("/healthz", "picker.example") == 200
        for host in ("localhost:9090", "127.0.0.1", "[::1]:9090", "picker", "picker.ns.svc", "a.localhost:1"):
            assert await status("/debug/endpoints", host) == 200, host


async def test_methods(endpoints: Path) -> None:
    async with running(endpoints_file=endpoints) as picker, client(picker) as http:
        assert (await http.post("/debug/live")).status_code == 405
        assert (await http.get("/debug/what-if")).status_code == 405
        assert (await http.options("/debug/what-if")).status_code == 405
        assert (await http.head("/debug/live")).status_code == 200
        assert (await http.head("/")).status_code == 200
        large = await http.post("/debug/what-if", content=b"x" * 100_000, headers={"content-type": "application/yaml"})
        assert large.status_code == 413


async def test_a_tick_that_fails_costs_the_stream_and_nothing_else(
    endpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(endpoints_file=endpoints) as picker, client(picker) as http:
        live = picker.page.live
        tick = live._tick
        monkeypatch.setattr(live, "_tick", lambda: 1 / 0)
        with pytest.raises(httpx.HTTPError):
            async with http.stream("GET", "/debug/live") as stream:
                await anext(messages(stream.aiter_lines()))
        monkeypatch.setattr(live, "_tick", tick)
        async with http.stream("GET", "/debug/live") as stream:
            assert (await anext(messages(stream.aiter_lines())))["endpoints"]
        assert (await http.get("/healthz")).status_code == 200

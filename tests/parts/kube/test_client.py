"""The HTTP side, against a server on loopback that answers as it is told."""

import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.core.errors import UserError
from pointsman.core.http import Request, Response, Server, header_lines
from pointsman.core.kinds import Key, Kind
from pointsman.kube import client
from pointsman.kube.client import PATIENCE, Client, connect
from pointsman.kube.errors import ApiError, Forbidden, Gone, NotLeader, Stale, Throttled, Unreachable
from pointsman.kube.transport import Transport

CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")
KEY = Key("a", "x")
Handler = Callable[[Request], Response | None]


class Stage:
    """A server whose answers a test chooses, and a client of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.requests: list[Request] = []
        self.handler: Handler = lambda _: Response(200, b"{}")

    def answer(self, request: Request) -> Response | None:
        self.requests.append(request)
        return self.handler(request)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Server() as server, httpx2.AsyncClient(transport=Transport(tls=None)) as http:
        made = Stage(Client(http))
        listener = await server.listen(made.answer, host="127.0.0.1", port=0)
        http.base_url = httpx2.URL(f"http://127.0.0.1:{listener.port}")
        yield made


def status(code: int, **headers: str) -> Response:
    body = json.dumps({"kind": "Status", "code": code, "message": f"no: {code}", "reason": "Test"}).encode()
    return Response(code, body, headers=header_lines(headers))


async def test_writes_carry_their_type_and_parameters(stage: Stage) -> None:
    await stage.client.patch(CONFIGMAP, KEY, {"a": 1}, how="apply", parameters={"fieldManager": "us"})
    await stage.client.delete(CONFIGMAP, KEY, uid="u1")
    patch, delete = stage.requests
    assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/a/configmaps/x")
    assert patch.headers[b"content-type"] == b"application/apply-patch+yaml"
    assert patch.query == b"fieldManager=us"
    assert json.loads(delete.body)["preconditions"] == {"uid": "u1"}


@pytest.mark.parametrize(("code", "expected"), [(403, Forbidden), (409, Stale), (410, Gone), (500, ApiError)])
async def test_refusals_are_classes(stage: Stage, code: int, expected: type[ApiError]) -> None:
    stage.handler = lambda _: status(code)
    with pytest.raises(expected, match=f"no: {code}"):
        await stage.client.get(CONFIGMAP, KEY)
    assert len(stage.requests) == 1  # none of these is repeated


async def test_what_is_no_status_is_quoted(stage: Stage) -> None:
    stage.handler = lambda _: Response(502, b"<html>bad gateway", b"text/html")
    with pytest.raises(ApiError, match="bad gateway"):
        await stage.client.get(CONFIGMAP, KEY)


@pytest.mark.parametrize("code", [429, 503])
async def test_retry_after_is_honoured(stage: Stage, code: int) -> None:
    stage.handler = lambda _: status(code, **{"retry-after": "0"}) if len(stage.requests) < 3 else Response(200, b"{}")
    await stage.client.create(CONFIGMAP, {"metadata": {"name": "x", "namespace": "a"}})
    assert len(stage.requests) == 3


async def test_patience_ends(stage: Stage) -> None:
    stage.handler = lambda _: status(429, **{"retry-after": "0"})
    with pytest.raises(Throttled):
        await stage.client.get(CONFIGMAP, KEY)
    assert len(stage.requests) == PATIENCE + 1


async def test_a_closed_fence_withholds_writes_and_lets_reads_pass(stage: Stage) -> None:
    def fence() -> None:
        raise NotLeader("no")

    fenced = stage.client.fenced(fence)
    await fenced.get(CONFIGMAP, KEY)
    document: dict[str, Any] = {"metadata": {"name": "x", "namespace": "a"}}
    for write in (
        fenced.create(CONFIGMAP, document),
        fenced.replace(CONFIGMAP, document),
        fenced.delete(CONFIGMAP, KEY),
        fenced.patch(CONFIGMAP, KEY, {}, how="merge"),
    ):
        with pytest.raises(NotLeader):
            await write
    assert [request.method for request in stage.requests] == ["GET"]


async def test_answers_are_counted(stage: Stage) -> None:
    seen: list[tuple[str, str]] = []
    counted = stage.client.observed(lambda method, code: seen.append((method, code)))
    await counted.get(CONFIGMAP, KEY)
    stage.handler = lambda _: status(409)
    with pytest.raises(Stale):
        await counted.delete(CONFIGMAP, KEY)
    assert seen == [("GET", "200"), ("DELETE", "409")]


async def test_no_server_is_unreachable() -> None:
    async with httpx2.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False) as http:
        with pytest.raises(Unreachable, match="GET /api/v1"):
            await Client(http).get(CONFIGMAP, KEY)


async def watched(stage: Stage, *pieces: bytes, end: bool = True, stall: float = 5.0) -> list[bytes]:
    """Return the lines of a watch whose body comes in these pieces."""
    lines: list[bytes] = []

    def handler(request: Request) -> None:
        stream = request.stream()
        for piece in pieces:
            stream.write(piece)
        if end:
            stream.end()

    stage.handler = handler
    async with stage.client.watch("/api/v1/pods", parameters={"resourceVersion": "1"}, stall=stall) as stream:
        lines.extend([line async for line in stream])
    return lines


async def test_lines_are_whole_however_the_bytes_come(stage: Stage) -> None:
    assert await watched(stage, b'{"a"', b':1}\n{"b":2}\n', b"\n") == [b'{"a":1}', b'{"b":2}']
    assert b"watch=1" in stage.requests[0].query


async def test_half_an_event_is_no_event(stage: Stage) -> None:
    assert await watched(stage, b'{"a":1}\n{"b"') == [b'{"a":1}']


async def test_silence_is_a_broken_watch(stage: Stage) -> None:
    with pytest.raises(Unreachable):
        await watched(stage, b'{"a":1}\n', end=False, stall=0.1)


async def test_a_watch_may_be_refused(stage: Stage) -> None:
    stage.handler = lambda _: status(410)
    with pytest.raises(Gone):
        async with stage.client.watch("/api/v1/pods", parameters={}, stall=1):
            pass


def test_a_missing_configuration_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no usable cluster configuration in .*/none"):
        connect(tmp_path / "none")
    broken = tmp_path / "broken"
    for text in (b"just: text", b"text", b"a: [", b"clusters: [1]\ncontexts: []", b"\xff\xfe\xff"):
        broken.write_bytes(text)
        with pytest.raises(UserError, match="no usable cluster configuration"):
            connect(broken)


async def test_an_answer_without_end_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
    packed = gzip.compress(bytes(64 << 20))
    for body, headers in ((bytes(2 << 20), {}), (packed, {"content-encoding": "gzip"})):
        stage.handler = partial(lambda _, answer: answer, answer=Response(200, body, headers=header_lines(headers)))
        with pytest.raises(Unreachable, match="larger than 1048576 bytes"):
            await stage.client.get(CONFIGMAP, KEY)


async def test_an_event_without_end_is_given_up_and_costs_no_more_than_its_bytes(stage: Stage) -> None:
    before = time.process_time()
    with pytest.raises(Unreachable, match="an event is larger than"):
        await watched(stage, *[bytes(1 << 20)] * 40)
    assert time.process_time() - before < 10, "joined anew for each piece it takes minutes"

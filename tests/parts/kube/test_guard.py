"""Who reads metrics, as far as it shows without a cluster: what is asked, what is kept, and what a flood costs.

An HTTP server answers in place of the API server; tests/cluster asks the real one.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from pointsman.core.health import serve, text
from pointsman.core.http import Request, Response, Server
from pointsman.kube import Client, connect
from pointsman.kube.guard import Guard

GOOD, KNOWN = "good", "known"


class Reviewer:
    """Knows two tokens, and lets one of them read /metrics."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.held = asyncio.Event()
        self.held.set()

    async def __call__(self, request: Request) -> Response:
        token = request.headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        path = json.loads(request.body)["spec"]["nonResourceAttributes"]["path"]
        self.asked.append((token, path))
        await self.held.wait()
        if token not in {GOOD, KNOWN}:
            return Response(401, b'{"code": 401, "message": "Unauthorized"}')
        allowed = token == GOOD and path == "/metrics"
        return Response(201, json.dumps({"status": {"allowed": allowed}}).encode())


@pytest.fixture
async def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
async def client(reviewer: Reviewer) -> AsyncIterator[Client]:
    async with Server() as server:
        listener = await server.listen(reviewer, host="127.0.0.1", port=0)
        http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False)
        async with Client(http) as client:
            yield client


@pytest.mark.parametrize(
    ("token", "path", "status", "questions"),
    [
        (GOOD, "/metrics", 200, 1),
        (GOOD, "/debug/endpoints", 403, 1),
        (KNOWN, "/metrics", 403, 1),
        ("nonsense", "/metrics", 401, 1),
        ("", "/metrics", 401, 0),
        ("a\nb", "/metrics", 401, 0),
        ("\x7f", "/metrics", 401, 0),
        ("ü", "/metrics", 401, 0),
    ],
)
async def test_the_reader_asks_with_its_own_token(
    client: Client, reviewer: Reviewer, token: str, path: str, status: int, questions: int
) -> None:
    guard = Guard(client, clock=lambda: 0.0)
    assert await guard.check(token, path=path) == status
    assert await guard.check(token, path=path) == status
    assert reviewer.asked == [(token, path)] * questions


async def test_an_answer_is_kept_for_a_minute(client: Client, reviewer: Reviewer) -> None:
    now = 0.0
    guard = Guard(client, clock=lambda: now)
    for now in (0.0, 59.0, 61.0, 62.0):  # noqa: B007 - read by the clock
        assert await guard.check(GOOD, path="/metrics") == 200
    assert len(reviewer.asked) == 2


async def test_tokens_without_end_are_kept_without_growth_and_do_not_drive_out_the_latest(
    client: Client, reviewer: Reviewer
) -> None:
    guard = Guard(client, clock=lambda: 0.0)
    for number in range(400):
        await guard.check(f"nonsense-{number}", path="/metrics")
    assert len(guard._known) == 256
    assert b"nonsense" not in b"".join(digest for digest, _ in guard._known)  # no token is kept as it is
    await guard.check("nonsense-399", path="/metrics")
    assert len(reviewer.asked) == 400


async def test_a_flood_of_tokens_is_no_flood_of_questions(client: Client, reviewer: Reviewer) -> None:
    guard = Guard(client, clock=lambda: 0.0)
    reviewer.held.clear()
    waiting = [asyncio.create_task(guard.check(f"nonsense-{number}", path="/metrics")) for number in range(100)]
    done, pending = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    while len(pending) > 8:
        done, pending = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.01)
    assert {task.result() for task in done} == {503}
    assert len(done) == 92
    reviewer.held.set()
    assert set(await asyncio.gather(*pending)) == {401}
    assert len(reviewer.asked) == 8
    assert await guard.check(GOOD, path="/metrics") == 200  # and afterwards all is as before


async def test_who_cannot_be_asked_about_is_not_let_in() -> None:
    async with Client(httpx2.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False)) as nowhere:
        guard = Guard(nowhere, clock=lambda: 0.0)
        assert await guard.check(GOOD, path="/metrics") == 503
        assert guard._known == {}


async def test_guarded_routes(client: Client) -> None:
    guard = Guard(client, clock=lambda: 0.0)
    routes = {"/metrics": lambda: text(200, "up 1\n")}
    async with (
        serve(routes, host="127.0.0.1", port=0, guard=guard) as port,
        httpx2.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as http,
    ):
        answers = {}
        for said in ("", f"Bearer {GOOD}", f"bearer  {GOOD}", f"Basic {GOOD}", f"Bearer {KNOWN}"):
            answers[said] = await http.get("/metrics", headers={"authorization": said} if said else {})
        assert {said: answer.status_code for said, answer in answers.items()} == {
            "": 401,
            f"Bearer {GOOD}": 200,
            f"bearer  {GOOD}": 200,
            f"Basic {GOOD}": 401,
            f"Bearer {KNOWN}": 403,
        }
        assert answers[f"Bearer {GOOD}"].text == "up 1\n"
        assert "bearer token" in answers[""].text and "nonResourceURLs" in answers[f"Bearer {KNOWN}"].text


def test_an_anonymous_client_has_neither_token_nor_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate on the connection, the API server would answer for that, whatever the token."""
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *given: loaded.append(given))
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t", "client-certificate": "a.crt", "client-key": "a.key"}}],
    }
    config = tmp_path / "config"
    config.write_text(json.dumps(document))
    for name in ("a.crt", "a.key"):
        (tmp_path / name).touch()
    assert connect(config)._http.auth is not None and len(loaded) == 1
    assert connect(config, anonymous=True)._http.auth is None and len(loaded) == 1

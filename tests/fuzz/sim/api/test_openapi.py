"""Fuzz: whatever the document allows, and what it forbids, never breaks the server or leaves anything behind."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from random import Random
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pointsman.sim.api.openapi import ASKED, READS, document
from pointsman.sim.api.routes import CONTROLS, GENERATION
from pointsman.sim.server import serving
from pointsman.sim.settings import Settings

VARIANTS = 16  # of each request that the document allows or forbids: making one up takes far longer than sending it
EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "60"))
pytestmark = [
    pytest.mark.xdist_group("sim-fuzz"),  # the last test looks at what the others left
    pytest.mark.timeout(180 + EXAMPLES),  # a second per request is plenty
]
schema = schemathesis.openapi.from_dict(json.loads(document()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A simulator in a thread of its own, with everything switched on."""
    found: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        chosen = Settings(
            model="m",
            host="127.0.0.1",
            port=0,
            seed=1,
            max_model_len=2048,
            max_num_seqs=64,
            enable_kvcache=True,
            zmq_endpoint="",
        )
        async with serving(chosen, environ={}) as (served,):
            found.append(f"http://127.0.0.1:{served.listener.port}")
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110 - the event belongs to another thread
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(10)
    yield found[0]
    stop.set()
    thread.join()


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections that stay open, so that a request's state can spill into the next one's if it ever does."""
    with requests.Session() as kept:
        yield kept


@pytest.fixture(scope="module")
def connection(url: str) -> Iterator[HTTPConnection]:
    """The same, with as little around it as there can be."""
    kept = HTTPConnection(url.removeprefix("http://"), timeout=60)
    yield kept
    kept.close()


def test_the_document_names_every_route_that_reads_a_body() -> None:
    reading = {path for path, methods in CONTROLS.items() if "POST" in methods} | set(GENERATION)
    without_body = {"/sleep", "/wake_up", "/ping", "/reset_prefix_cache", "/admin/config", "/fake_metrics"}
    assert set(READS) == reading - without_body
    assert all("GET" in CONTROLS[path] for path in ASKED)


def damaged(body: bytes, chance: Random) -> Iterator[bytes]:
    """Return a body cut short, with other bytes, with a piece left out, and with a piece said twice, in turn."""
    for number in range(VARIANTS):
        start, end = sorted(chance.randrange(len(body) + 1) for _ in range(2))
        piece = body[start:end]
        yield (
            body[:end],
            body[:start] + chance.randbytes(len(piece) % 5 + 1) + body[start + 1 :],
            body[:start] + body[end:],
            body[:end] + piece + body[end:],
        )[number % 4]


@schema.parametrize()
@settings(
    max_examples=max(EXAMPLES // len(READS) // (VARIANTS + 1), 5),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_fuzz_what_the_document_allows_and_what_resembles_it(
    case: schemathesis.Case[Any], url: str, session: requests.Session, connection: HTTPConnection
) -> None:
    named = case.body.get("model") if isinstance(case.body, dict) else None
    if isinstance(case.body, dict) and isinstance(named, str) and len(named) != 1:
        case.body["model"] = "m"  # or nearly all of them would ask for a model that is not there
    response = case.call(base_url=url, session=session, timeout=60)
    assert response.status_code < 500, (case.body, response.text)
    body = response.request.body
    for variant in damaged(body, Random(body)) if isinstance(body, bytes) else ():
        connection.request(case.method, case.path, variant)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status < 500, (variant, said)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from([*READS, *CONTROLS]),
    method=st.sampled_from(["POST", "GET", "PUT"]),
    body=st.binary(max_size=300),
)
def test_fuzz_any_bytes_on_any_route(url: str, session: requests.Session, path: str, method: str, body: bytes) -> None:
    if path in {"/sleep", "/fake_metrics", "/admin/config"}:
        return
    answer = session.request(method, url + path, data=body, timeout=60)
    assert answer.status_code < 500


def test_fuzz_has_left_nothing_behind(url: str) -> None:
    page = httpx.get(f"{url}/metrics").text
    assert 'vllm:num_requests_running{model_name="m"} 0\n' in page
    assert 'vllm:num_requests_waiting{model_name="m"} 0\n' in page
    assert 'vllm:kv_cache_usage_perc{model_name="m"} 0\n' in page
    assert httpx.get(f"{url}/load").json() == {"server_load": 0}

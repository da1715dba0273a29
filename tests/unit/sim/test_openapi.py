"""Fuzz: whatever the document allows, and what it forbids, never breaks the server or leaves anything behind."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pointsman.sim.openapi import ASKED, READS, document
from pointsman.sim.routes import CONTROLS, GENERATION
from pointsman.sim.server import serving
from pointsman.sim.settings import Settings

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "120"))
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


def test_the_document_names_every_route_that_reads_a_body() -> None:
    reading = {path for path, methods in CONTROLS.items() if "POST" in methods} | set(GENERATION)
    without_body = {"/sleep", "/wake_up", "/ping", "/reset_prefix_cache", "/admin/config", "/fake_metrics"}
    assert set(READS) == reading - without_body
    assert all("GET" in CONTROLS[path] for path in ASKED)


@schema.parametrize()
@settings(
    max_examples=max(EXAMPLES // len(READS), 5),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_fuzz_what_the_document_allows(case: schemathesis.Case[Any], url: str, session: requests.Session) -> None:
    response = case.call(base_url=url, session=session, timeout=60)
    assert response.status_code < 500, (case.body, response.text)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
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

"""One request, through real Envoy, to the endpoint the picker chose: every shape of request, two HTTP versions."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import completion

if TYPE_CHECKING:  # seconds to import, and each worker collects every test
    import openai

ROUNDS = 8
"""With three endpoints, agreement by luck in one shape is (1/3)^8."""


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
async def http(request: pytest.FixtureRequest, lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    two = request.param == "HTTP/2"
    async with httpx.AsyncClient(base_url=lab.url, http1=not two, http2=two, timeout=20) as client:
        yield client


async def answered_by_the_pick(lab: Lab, answer: httpx.Response, *, request_id: str, status: int = 200) -> str:
    """Hold who answered against the pick, and return who it was."""
    assert answer.status_code == status, answer.text
    picked = await lab.picked(request_id)
    assert answer.headers["x-inference-pod"] == picked[0]
    return picked[0]


def fresh_id() -> dict[str, str]:
    return {"x-request-id": str(uuid.uuid4())}


async def test_get(lab: Lab, http: httpx.AsyncClient) -> None:
    for _ in range(ROUNDS):
        headers = fresh_id()
        answer = await http.get("/v1/models", headers=headers)
        await answered_by_the_pick(lab, answer, request_id=headers["x-request-id"])
        assert answer.json()["data"][0]["id"] == MODEL


@pytest.mark.parametrize("size", [pytest.param(1_000, id="1KB"), pytest.param(1_000_000, id="1MB")])
async def test_post(lab: Lab, http: httpx.AsyncClient, size: int) -> None:
    for _ in range(ROUNDS if size < 100_000 else 3):
        headers = fresh_id()
        answer = await http.post("/v1/completions", json=completion(size=size), headers=headers)
        await answered_by_the_pick(lab, answer, request_id=headers["x-request-id"])
        assert answer.json()["usage"]["prompt_tokens"] > 0


async def test_post_of_nothing_reaches_the_pick_which_refuses_it(lab: Lab, http: httpx.AsyncClient) -> None:
    for _ in range(ROUNDS):
        headers = fresh_id()
        answer = await http.post("/v1/completions", content=b"", headers=headers)
        await answered_by_the_pick(lab, answer, request_id=headers["x-request-id"], status=400)


async def test_post_in_chunks_without_a_length(lab: Lab, http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b'{"model": "', MODEL.encode(), b'", "max_tokens": 1, "prompt": "', b"y" * 100_000, b'"}'):
            yield piece

    for _ in range(ROUNDS):
        headers = fresh_id()
        answer = await http.post("/v1/completions", content=chunks(), headers=headers)
        await answered_by_the_pick(lab, answer, request_id=headers["x-request-id"])


async def test_forged_destination_is_ignored(lab: Lab, http: httpx.AsyncClient) -> None:
    """A client names one endpoint, and then Envoy's own admin: neither is obeyed."""
    served = set()
    for sent in range(60):  # draws among three idle endpoints: as many as it takes, and of each lie a few
        forged = (lab.pods["pod-0"], lab.admin)[sent % 2]
        names = ("", "-served", "-subset")
        lies = {f"x-gateway-destination-endpoint{name}": str(forged) for name in names}
        headers = fresh_id()
        answer = await http.post("/v1/completions", json=completion(), headers=headers | lies)
        served.add(await answered_by_the_pick(lab, answer, request_id=headers["x-request-id"]))
        if sent >= 2 * ROUNDS and served == set(lab.pods):
            break
    assert served == set(lab.pods)


async def test_pick_decides_not_luck(lab: Lab, http: httpx.AsyncClient) -> None:
    """Envoy knows three endpoints, the picker one: that one answers everything."""
    try:
        for name in ("pod-1", "pod-2"):
            await lab.picker_has([name])
            for _ in range(ROUNDS):
                answer = await http.post("/v1/completions", json=completion())
                assert (answer.status_code, answer.headers["x-inference-pod"]) == (200, name)
    finally:
        await lab.picker_has(lab.pods)


async def test_pick_outside_the_pool_is_refused_not_served_by_another(lab: Lab, http: httpx.AsyncClient) -> None:
    await lab.envoy_has(["pod-0", "pod-1"])
    try:
        await lab.picker_has(["pod-2"])
        for _ in range(ROUNDS):
            answer = await http.post("/v1/completions", json=completion())
            assert (answer.status_code, answer.headers.get("x-inference-pod")) == (503, None)
    finally:
        await lab.envoy_has(lab.pods)
        await lab.picker_has(lab.pods)


@pytest.fixture
def client(lab: Lab) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{lab.url}/v1", api_key="none", max_retries=0) as official:
        yield official


async def test_openai_client_unchanged(lab: Lab, client: openai.OpenAI) -> None:
    headers = fresh_id()
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=8, extra_headers=headers
    )
    picked = await lab.picked(headers["x-request-id"])
    assert raw.headers["x-inference-pod"] == picked[0]
    answer = raw.parse()
    assert answer.choices[0].message.content
    assert [model.id for model in client.models.list()] == [MODEL]


async def test_openai_client_streams(lab: Lab, client: openai.OpenAI) -> None:
    headers = fresh_id()
    with client.chat.completions.with_streaming_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
        stream=True,
        extra_headers=headers,
    ) as raw:
        picked = await lab.picked(headers["x-request-id"])
        assert raw.headers["x-inference-pod"] == picked[0]
        events = [line for line in raw.iter_lines() if line]
    assert len(events) > 3
    assert events[-1] == "data: [DONE]"

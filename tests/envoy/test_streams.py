"""Answers that stream: they arrive as they are made, they may be left early, and many go on at once."""

import asyncio
import uuid
from collections import Counter

import httpx
from tests.envoy.harness import Lab
from tests.envoy.load import completion
from tests.waiting import until

from pointsman.local.http import get
from pointsman.local.observe import gauge

MANY = 200


async def running(lab: Lab, pod: str) -> int | None:
    answer = await get(lab.pods[pod], "/metrics")
    return None if answer is None else gauge(answer.body, "running")


async def test_first_token_arrives_before_the_last_is_made(lab: Lab) -> None:
    """Causal, not timed: when the first token is here, the simulator itself says that it still generates."""
    request_id = str(uuid.uuid4())
    body = completion(tokens=100, stream=True) | {"ignore_eos": True}
    async with (
        httpx.AsyncClient(base_url=lab.url, timeout=20) as http,
        http.stream("POST", "/v1/completions", json=body, headers={"x-request-id": request_id}) as answer,
    ):
        pod = answer.headers["x-inference-pod"]
        assert [pod] == (await lab.picked(request_id))[:1]
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith("data: {")
        assert await running(lab, pod) == 1
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert len(rest) > 50


async def test_client_that_leaves_frees_its_reservation(lab: Lab) -> None:
    request_id = str(uuid.uuid4())
    body = completion(tokens=100_000, stream=True) | {"ignore_eos": True}
    async with (
        httpx.AsyncClient(base_url=lab.url, timeout=20) as http,
        http.stream("POST", "/v1/completions", json=body, headers={"x-request-id": request_id}) as answer,
    ):
        pod = answer.headers["x-inference-pod"]
        assert [pod] == (await lab.picked(request_id))[:1]
        lines = answer.aiter_lines()  # kept: an abandoned generator would close the answer
        await anext(lines)
        assert await lab.inflight() == {name: int(name == pod) for name in lab.pods}

    async def freed() -> bool:
        return (await lab.inflight())[pod] == 0 and await running(lab, pod) == 0

    await until(freed)


async def test_client_that_leaves_during_its_upload_frees_everything(lab: Lab) -> None:
    _, writer = await asyncio.open_connection(lab.gateway.host, lab.gateway.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
    await writer.drain()

    async def uploading() -> bool:
        answer = await get(lab.admin, "/stats?filter=^http.gateway.downstream_rq_active$")
        return answer is not None and answer.body.strip().endswith(b": 1")

    await until(uploading)
    writer.close()

    async def freed() -> bool:
        return not await uploading() and not any((await lab.inflight()).values())

    await until(freed)
    assert await lab.answers()


async def test_two_hundred_streams_at_once(lab: Lab) -> None:
    before = await lab.picks()
    answered: Counter[str] = Counter()
    open_now = 0
    most = 0

    async def one(http: httpx.AsyncClient) -> None:
        nonlocal open_now, most
        body = completion(tokens=60, stream=True) | {"ignore_eos": True}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            open_now += 1
            most = max(most, open_now)
            lines = [line async for line in answer.aiter_lines() if line]
            open_now -= 1
        assert lines[-1] == "data: [DONE]"
        answered[answer.headers["x-inference-pod"]] += 1

    limits = httpx.Limits(max_connections=MANY)
    async with httpx.AsyncClient(base_url=lab.url, timeout=60, limits=limits) as http, asyncio.TaskGroup() as group:
        for _ in range(MANY):
            group.create_task(one(http))
    after = await lab.picks()
    print(f"{MANY} streams, at most {most} open at once, answered by {dict(sorted(answered.items()))}")
    assert {pod: after[pod] - before[pod] for pod in after} == dict(answered)
    assert most > MANY // 2
    assert answered.keys() == lab.pods.keys()
    assert not any((await lab.inflight()).values())

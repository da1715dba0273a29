"""Tokens from a service, through Envoy: a simulator renders the prompts; when it is ill, nobody else is."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab, Part, here
from tests.envoy.load import load
from tests.ports import fresh_port
from tests.waiting import until

from pointsman.local.http import get

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
- type: active-request-scorer
- {{type: token-producer, parameters: {{modelName: {model}, vllm: {{url: "http://{address}", timeout: 300ms}}}}}}
"""
WORDS = "the points are set before the train arrives " * 40


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


class Tokenized:
    """A stack with a tokenizer service beside it."""

    def __init__(self, lab: Lab, service: Part, http: httpx.AsyncClient) -> None:
        self.lab, self.service, self._http = lab, service, http

    async def ask(self, path: str, **body: Any) -> tuple[str, int]:
        """Send a request; return who answered it, and how many tokens it was decided by."""
        headers = {"x-request-id": f"r-{id(body)}"}
        answer = await self._http.post(
            self.lab.url + path, json={"model": MODEL, "max_tokens": 1, **body}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        found = await get(self.lab.picker_metrics[0], f"/debug/decisions?id={headers['x-request-id']}")
        assert found is not None
        (decision,) = json.loads(found.body)["decisions"]
        return answer.headers["x-inference-pod"], decision["prompt_tokens"]

    async def count(self, **body: Any) -> int:
        """Return how many tokens the service says a prompt has."""
        answer = await self._http.post(f"http://{self.service.health[0]}/tokenize", json={"model": MODEL, **body})
        return int(answer.json()["count"])

    async def results(self) -> dict[str, int]:
        page = await get(self.lab.picker_metrics[0], "/metrics")
        assert page is not None
        lines = [line for line in page.body.decode().splitlines() if line.startswith("pointsman_tokenizations_total{")]
        return {line.partition('result="')[2].partition('"')[0]: int(float(line.split()[-1])) for line in lines}


@pytest.fixture
async def tokenized(start_lab: StartLab, tmp_path: Path, http: httpx.AsyncClient) -> AsyncIterator[Tokenized]:
    address = here(fresh_port())
    lab = await start_lab(picker=("--config-text", CONFIG.format(model=MODEL, address=address)))
    command = [*lab.simulators["pod-0"].command[:3], "sim", "--port", str(address.port), "--model", MODEL]
    service = Part(name="tokenizer", command=command, health=(address, "/health"), log=tmp_path / "tokenizer.log")
    try:
        await service.start()
        yield Tokenized(lab, service, http)
    finally:
        service.send(signal.SIGCONT) if service.child is not None else None
        service.kill()


async def test_requests_are_decided_by_the_tokens_of_the_service(tokenized: Tokenized) -> None:
    messages = [{"role": "user", "content": WORDS}]
    pod, tokens = await tokenized.ask("/v1/chat/completions", messages=messages)
    assert tokens == await tokenized.count(messages=messages)
    assert tokens != -(-len(f"user{WORDS}") // 4), "no estimate"
    again = {(await tokenized.ask("/v1/chat/completions", messages=messages))[0] for _ in range(5)}
    assert again == {pod}, "its prefix is known by them"
    _, tokens = await tokenized.ask("/v1/completions", prompt=WORDS)
    assert tokens == await tokenized.count(prompt=WORDS)
    assert await tokenized.results() == {"answered": 7}


async def test_a_service_that_hangs_or_dies_costs_no_request(tokenized: Tokenized) -> None:
    estimate = -(-len(WORDS) // 4)
    async with load(tokenized.lab.url, clients=4) as tally:
        await tally.grows(20)
        tokenized.service.send(signal.SIGSTOP)
        await tally.grows(20)
        assert (await tokenized.ask("/v1/completions", prompt=WORDS))[1] == estimate
        tokenized.service.send(signal.SIGCONT)
        tokenized.service.kill()
        await tally.grows(20)
        assert (await tokenized.ask("/v1/completions", prompt=WORDS))[1] == estimate
        await tokenized.service.start()

        async def exact() -> bool:
            return (await tokenized.ask("/v1/completions", prompt=WORDS))[1] != estimate

        await until(exact)
    assert set(tally.answers) == {200}, str(tally)
    results = await tokenized.results()
    assert results["timeout"] and results["unreachable"] and results["answered"]

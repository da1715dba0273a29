"""What llm-d's own integration tests expect, through a real Envoy: whom it picks, and how it refuses.

The pods are simulators that show made-up metrics; a case sets them through their admin route and waits until the picker
has read them. The judge is the pod that answered, or the exact refusal.
"""

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.envoy.conftest import StartLab
from tests.envoy.harness import Lab
from tests.waiting import until

from pointsman.core.documents import to_yaml
from pointsman.core.files import replace
from pointsman.local import programs

CONFIG = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": name}
        for name in ("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "lora-affinity-scorer")
    ],
}
LORA = "sql-lora-1fdg2"
NAMES = ("rewritten-model", LORA, "foo", "bar", "direct-model")


@dataclass(frozen=True)
class Pod:
    waiting: int
    kv: float
    loras: tuple[str, ...] = ()


@pytest.fixture
async def lab(start_lab: StartLab, tmp_path: Any) -> Lab:
    (tmp_path / "config.yaml").write_text(to_yaml(CONFIG))
    fake = json.dumps({"running-requests": 0, "waiting-requests": 0, "kv-cache-usage": 0.0, "loras": []})
    simulator = ("--fake-metrics", fake, "--max-loras", "2", "--served-model-name", *NAMES)
    return await start_lab(simulator=simulator, picker=("--config-file", str(tmp_path / "config.yaml")))


@pytest.fixture
async def http(lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=lab.url, timeout=20) as client:
        yield client


async def show(lab: Lab, pods: list[Pod]) -> None:
    """Let the pods show these metrics, and wait until the picker knows."""
    async with httpx.AsyncClient() as client:
        for at, (pod, address) in enumerate(zip(pods, lab.pods.values(), strict=False)):
            lora = {"running": ",".join(pod.loras), "waiting": "", "timestamp": 1_700_000_000.0 + at}
            metrics = {"waiting-requests": pod.waiting, "kv-cache-usage": pod.kv, "loras": [lora] if pod.loras else []}
            answer = await client.post(f"http://{address}/admin/config", json={"fake-metrics": metrics})
            assert answer.status_code == 200, answer.text
    names = list(lab.pods)[: len(pods)]
    await lab.picker_has(names)

    async def read() -> bool:
        rows = {row["name"]: row for row in await lab.rows()}
        seen = [rows[name]["scraped"] or {} for name in names]
        return [(row.get("waiting"), row.get("kv_usage")) for row in seen] == [(pod.waiting, pod.kv) for pod in pods]

    await until(read)


def ask(model: str) -> dict[str, Any]:
    return {"max_tokens": 100, "model": model, "prompt": str(uuid.uuid4()), "temperature": 0}


PICKS: list[tuple[str, str, list[Pod]]] = [
    ("lower queue and kv", "pod-1", [Pod(3, 0.2), Pod(0, 0.1), Pod(10, 0.2)]),
    ("active LoRA", "pod-1", [Pod(0, 0.2, ("foo", "bar")), Pod(0, 0.1, ("foo", LORA)), Pod(10, 0.2, ("foo", "bar"))]),
    ("LoRA despite kv", "pod-1", [Pod(10, 0.2, ("foo", "bar")), Pod(10, 0.4, ("foo", LORA)), Pod(10, 0.3, ("foo",))]),
    ("no shedding", "pod-0", [Pod(6, 0.2, ("foo", "bar", LORA)), Pod(0, 0.85, ("foo",)), Pod(10, 0.9, ("foo",))]),
    ("two pods", "pod-0", [Pod(4, 0.2, ("foo", "bar", LORA)), Pod(4, 0.85, ("foo", LORA))]),
]


async def test_whom_it_picks(lab: Lab, http: httpx.AsyncClient) -> None:
    for case, expected, pods in PICKS:
        await show(lab, pods)
        for _ in range(3):
            answer = await http.post("/v1/completions", json=ask(LORA))
            assert answer.headers["x-inference-pod"] == expected, case


async def test_a_body_in_pieces_is_decided_on_as_a_whole(lab: Lab, http: httpx.AsyncClient) -> None:
    await show(lab, [Pod(4, 0.2, ("foo", "bar", LORA)), Pod(4, 0.85, ("foo", LORA))])
    raw = json.dumps(ask(LORA)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(raw), 7):
            yield raw[at : at + 7]

    answer = await http.post("/v1/completions", content=pieces())
    assert (answer.status_code, answer.headers["x-inference-pod"]) == (200, "pod-0")


async def test_how_it_refuses(lab: Lab, http: httpx.AsyncClient) -> None:
    words = "error unmarshaling request bodyMap: invalid character 'o' in literal null (expecting 'u')"
    answer = await http.post("/v1/completions", content=b"no healthy upstream")
    assert (answer.status_code, answer.text) == (400, f"inference error: BadRequest - {words}")
    answer = await http.post("/v1/completions", json={"prompt": "x"})
    assert (answer.status_code, answer.text) == (400, "inference error: BadRequest - model not found in request body")
    await lab.picker_has([])
    answer = await http.post("/v1/completions", json=ask(LORA))
    assert answer.status_code == 503
    message = "failed to find endpoint candidates for serving the request"
    assert answer.text == f"inference error: ServiceUnavailable - {message}"
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    answer = await http.get("/v1/models")
    assert (answer.status_code, answer.text) == (500, "inference error: Internal - no pods available in datastore")


async def test_rewrites_and_objectives_from_the_file(lab: Lab, http: httpx.AsyncClient) -> None:
    listing = programs.picker_endpoints([(name, address) for name, address in lab.pods.items()])
    rule = {
        "matches": [{"model": {"value": "model-to-be-rewritten"}}],
        "targets": [{"modelRewrite": "rewritten-model"}],
    }
    listing |= {
        "objectives": [{"name": "batch", "priority": -1}],
        "modelRewrites": [{"name": "rewrite", "rules": [rule]}],
    }
    replace(lab.folder / "endpoints.yaml", to_yaml(listing))

    async def rewritten() -> bool:
        answer = await http.post("/v1/completions", json=ask("model-to-be-rewritten"))
        return answer.status_code == 200 and answer.json()["model"] == "model-to-be-rewritten"

    await until(rewritten)
    events = await http.post("/v1/completions", json=ask("model-to-be-rewritten") | {"stream": True})
    assert b"rewritten-model" not in events.content
    assert events.content.count(b'"model":"model-to-be-rewritten"') > 1
    answer = await http.post("/v1/completions", json=ask("direct-model"))
    assert answer.status_code == 200, "a model that no rule names is left alone"
    await show(lab, [Pod(50, 0.99), Pod(50, 0.99), Pod(50, 0.99)])
    replace(lab.folder / "endpoints.yaml", to_yaml(listing))

    async def shed() -> bool:
        answer = await http.post(
            "/v1/completions", json=ask("direct-model"), headers={"x-llm-d-inference-objective": "batch"}
        )
        return answer.status_code == 429 and "sheddable request dropped" in answer.text

    await until(shed)
    assert (await http.post("/v1/completions", json=ask("direct-model"))).status_code == 200

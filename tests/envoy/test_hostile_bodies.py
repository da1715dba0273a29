"""Bodies that no client should send, through Envoy and the picker to simulators: each costs its own request.

What was sent must not be found anywhere afterwards: logs, decisions and recordings hold no prompt and no secret.
"""

import asyncio
import json
import os
import random
import uuid
from collections import Counter
from pathlib import Path

import httpx
import pytest
from tests.bodies import BODIES, DIGITS, broken
from tests.bystander import completions, resident_mib, watched
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "150"))
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/inference/v1/generate")
CONTROLS = (
    "/v1/embeddings", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/chat/completions/render",
    "/v1/completions/render", "/tokenize", "/detokenize", "/admin/config", "/fake_metrics",
)  # fmt: skip


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=30, trust_env=False)


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


async def test_numbers_of_thousands_of_digits_cost_one_request(start_lab: StartLab) -> None:
    lab = await start_lab(replicas=2)
    answers: Counter[int] = Counter()
    async with completions(lab.url, model=MODEL) as send, watched(send), client(lab.url) as http:
        for _ in range(15):
            for number in (DIGITS, f"{DIGITS}.5", f"-{DIGITS}", "9" * 4300):
                body = f'{{"model": "{MODEL}", "prompt": "a", "max_tokens": {number}}}'
                answer = await http.post("/v1/completions", content=body)
                answers[answer.status_code] += 1
            await asyncio.sleep(0.2)
        unread = await http.post("/v1/completions", content=BODIES["huge number nobody reads"](MODEL, "a"))
    assert answers == {400: 60}
    assert "x-inference-pod" in answer.headers  # the model server says no, the picker passes on what it does not read
    assert unread.status_code == 200


async def test_a_quarter_of_a_million_prompts_in_one_body_cost_one_request(start_lab: StartLab) -> None:
    lab = await start_lab(replicas=2)
    body = json.dumps({"model": MODEL, "max_tokens": 1, "prompt": ["a"] * 250_000})
    async with completions(lab.url, model=MODEL) as send, client(lab.url) as http:
        picker = lab.pickers[0].child
        assert picker is not None
        before = resident_mib(picker.pid)
        async with watched(send, calm=30):
            answers = [(await http.post("/v1/completions", content=body)).status_code for _ in range(8)]
    assert set(answers) <= {200, 400}
    assert resident_mib(picker.pid) - before < 64


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_hostile_bodies_get_an_answer(lab: Lab, path: str) -> None:
    async with completions(lab.url, model=MODEL) as send, watched(send, calm=30), client(lab.url) as http:
        for name, make in BODIES.items():
            answer = await http.post(path, content=make(MODEL, "hello"))
            assert answer.status_code in {200, 400, 404}, f"{name}: {answer.status_code} {answer.text[:300]}"


async def test_fuzz_leaves_no_secret_in_logs(start_lab: StartLab, tmp_path: Path) -> None:
    recording = tmp_path / "decisions.jsonl"
    lab = await start_lab(replicas=2, picker=("--explain", "--record", str(recording)))
    draw = random.Random(EXAMPLES)
    mark = uuid.uuid4().hex
    secret = {"authorization": f"Bearer token{mark}", "x-api-key": f"key{mark}", "cookie": f"session=cookie{mark}"}
    more = {"x-goog-api-key": f"goog{mark}", "x-auth-token": f"auth{mark}", "proxy-authorization": f"Basic pa{mark}"}
    headers = {**secret, **more}
    pods = [f"http://{address}" for address in lab.pods.values()]
    async with client(lab.url) as http:
        for _ in range(EXAMPLES):
            body = broken(draw, MODEL, f"prompt{mark}")
            url = draw.choice([*(f"{lab.url}{path}" for path in PATHS), *(f"{pods[0]}{path}" for path in CONTROLS)])
            answer = await http.post(url, content=body, headers=headers)
            # The Go simulator says 500 to all that is wrong with fake metrics.
            fine = answer.status_code < 500 or (url.endswith("/fake_metrics") and "internal" not in answer.text)
            assert fine, (url, answer.status_code, body[:300], answer.text[:300])
        kept = (await http.get(f"http://{lab.picker_metrics[0]}/debug/decisions")).text
    assert json.loads(kept)["decisions"]
    files = written(tmp_path)
    assert {"picker-0.log", "pod-0.log", "decisions.jsonl"} <= files.keys()
    assert files["decisions.jsonl"]
    for name, text in {**files, "/debug/decisions": kept}.items():
        assert mark not in text, f"{name}: …{text[max(0, text.index(mark) - 300) : text.index(mark) + 40]}…"
        assert "Traceback" not in text, name
        assert not name.endswith(".log") or len(max(text.splitlines(), default="", key=len)) < 10_000, name

"""What Envoy sends to the picker of a response: by its modes, and by what the picker asks for."""

import httpx
import pytest
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab

from pointsman.local.http import get

READS_NOTHING = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: active-request-scorer}]
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
"""
TOKENS = 40
FEW, MANY = 4, 10
"""Messages for a response: a busy machine joins pieces of it, but never to so few as when none is sent."""
FULL = "FULL_DUPLEX_STREAMED"


def modes(request: str, response: str) -> dict[str, str]:
    return {
        "request_header_mode": "SEND",
        "request_body_mode": request,
        "request_trailer_mode": "SKIP" if request == "NONE" else "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": response,
        "response_trailer_mode": "SEND",
    }


async def messages(lab: Lab) -> int:
    """Return how many messages Envoy has sent to the picker."""
    answer = await get(lab.admin, "/stats?filter=ext_proc.stream_msgs_sent$")
    assert answer is not None
    return int(answer.body.split()[-1])


async def running(lab: Lab) -> bool:
    """Return whether a model server works on a request."""
    pages = [await get(pod, "/metrics") for pod in lab.pods.values()]
    lines = [line for page in pages if page is not None for line in page.body.splitlines()]
    return any(line.startswith(b"vllm:num_requests_running") and float(line.split()[-1]) for line in lines)


async def stream(lab: Lab) -> tuple[int, list[int]]:
    """Have a response streamed; return the messages that it took, and the requests in flight during it.

    Asked beside the stream while the model server works on it: who asks after each piece may be far behind it.
    """
    body = {"model": MODEL, "prompt": "x", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    before, inflight = await messages(lab), list[int]()
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("POST", f"{lab.url}/v1/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        now = sum((await lab.inflight()).values())
        while await running(lab):
            inflight.append(now)
            now = sum((await lab.inflight()).values())
        await answer.aread()
    return await messages(lab) - before, inflight


@pytest.mark.parametrize(
    ("request_mode", "response_mode", "reads", "few"),
    [
        pytest.param("NONE", "STREAMED", False, True, id="nobody reads it, and Envoy obeys"),
        pytest.param("NONE", "STREAMED", True, False, id="its usage is read"),
        pytest.param(FULL, "NONE", True, True, id="the gateway never sends it"),
        pytest.param(FULL, FULL, False, False, id="full duplex"),
        pytest.param("NONE", FULL, False, False, id="full duplex, of the response alone"),
        pytest.param(FULL, "STREAMED", False, False, id="full duplex, of the request alone: Envoy does not obey"),
    ],
)
async def test_the_pieces_of_a_response(
    start_lab: StartLab, request_mode: str, response_mode: str, reads: bool, few: bool
) -> None:
    lab = await start_lab(
        simulator=("--inter-token-latency", "30ms"),
        picker=() if reads else ("--config-text", READS_NOTHING),
        ext_proc={"processing_mode": modes(request_mode, response_mode), "allow_mode_override": True},
    )
    count, inflight = await stream(lab)
    assert (count <= FEW) if few else (count >= MANY), count
    assert set(inflight) == {1}, "it holds its place until its end, however little of it is seen"
    assert sum((await lab.inflight()).values()) == 0

"""A simulator as a process: signals, disconnects, many pods, TLS, seeds."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
from itertools import islice
from pathlib import Path

import httpx
import pytest
from tests.ports import fresh_port, fresh_span
from tests.sim.simulator import Simulator, Start
from tests.waiting import wait_until

from pointsman.core.certificates import self_signed

CHAT = {"model": "test-model", "messages": [{"role": "user", "content": "x"}]}


def test_a_client_that_asks_before_it_sends_sees_the_stream_as_it_comes(start: Start) -> None:
    simulator = start("--mode", "echo", "--time-to-first-token", "50ms", "--inter-token-latency", "20ms")
    body = json.dumps({"model": "test-model", "prompt": "a b c", "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", simulator.port), timeout=10) as peer:
        peer.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode())
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(body)
        parts = list(iter(lambda: peer.recv(65_536), b""))
    shown = b"".join(parts).decode()
    assert len(parts) > 1, "the tokens came in one piece"
    assert "HTTP/1.1 200 OK" in shown and "content-type: text/event-stream" in shown
    assert "data: [DONE]" in shown and shown.count('"text":') == 4


async def test_a_burst_of_a_thousand_shows_exact_gauges_and_a_ttft_with_the_queue(start: Start) -> None:
    simulator = start(
        "--max-num-seqs", "12", "--max-waiting-queue-length", "1000", "--mode", "echo",
        "--time-to-first-token", "60s",
    )  # fmt: skip
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=simulator.url, limits=limits, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):
        asked = [group.create_task(client.post("/v1/chat/completions", json=CHAT)) for _ in range(1000)]
        for _ in range(1000):
            await asyncio.sleep(0.02)
            page = (await client.get("/metrics")).text
            running = float(page.split("vllm:num_requests_running{")[1].split("} ")[1].split("\n")[0])
            waiting = float(page.split("vllm:num_requests_waiting{")[1].split("} ")[1].split("\n")[0])
            assert running <= 12 and (waiting == 0 or running == 12)
            if waiting == 988:
                break
        else:
            pytest.fail("988 waiting was never seen")
        overflow = [group.create_task(client.post("/v1/chat/completions", json=CHAT)) for _ in range(20)]
        refused = [await answer for answer in islice(asyncio.as_completed(overflow, timeout=20), 8)]
        assert {answer.status_code for answer in refused} == {429}
        for task in [*asked, *overflow]:
            task.cancel()
    wait_until(lambda: simulator.metric("vllm:num_requests_running") == 0)
    assert simulator.metric("vllm:num_requests_waiting") == 0


def test_time_to_first_token_counts_the_queue(start: Start) -> None:
    simulator = start("--max-num-seqs", "1", "--time-to-first-token", "500ms", "--mode", "echo")
    with httpx.Client(base_url=simulator.url, timeout=20) as client:

        async def three() -> None:
            async with httpx.AsyncClient(base_url=simulator.url, timeout=20) as many:
                await asyncio.gather(*(many.post("/v1/chat/completions", json=CHAT) for _ in range(3)))

        asyncio.run(three())
        assert client.get("/health").status_code == 200
    assert simulator.metric("vllm:time_to_first_token_seconds_count") == 3
    # 0.5, 1.0 and 1.5 s if all three come at once; 1.5 s in all if the queue were left out
    assert 2.0 < simulator.metric("vllm:time_to_first_token_seconds_sum") <= 3.001
    assert 0.5 < simulator.metric("vllm:request_queue_time_seconds_sum") <= 1.501


def test_a_client_that_leaves_frees_its_place_at_once(start: Start) -> None:
    simulator = start("--max-num-seqs", "1", "--inter-token-latency", "5s", "--mode", "echo")
    with (
        httpx.Client(base_url=simulator.url) as client,
        client.stream(
            "POST", "/v1/completions", json={"model": "test-model", "prompt": "a b c", "stream": True}
        ) as answer,
    ):
        lines = answer.iter_lines()  # held, because a collected iterator would close the connection
        next(lines)
        assert simulator.metric("vllm:num_requests_running") == 1
    wait_until(lambda: simulator.metric("vllm:num_requests_running") == 0)


def test_sigterm_finishes_open_streams_and_refuses_new_requests(start: Start) -> None:
    simulator = start("--mode", "echo", "--inter-token-latency", "200ms")
    ask = {"model": "test-model", "prompt": "a b c d e f", "stream": True}
    with (
        httpx.Client(base_url=simulator.url, timeout=20) as client,
        client.stream("POST", "/v1/completions", json=ask) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        simulator.process.send_signal(signal.SIGTERM)
        short = {"model": "test-model", "prompt": "a", "max_tokens": 1}

        def refusal() -> httpx.Response | None:
            answer = httpx.post(f"{simulator.url}/v1/completions", json=short)
            return answer if answer.status_code == 503 else None

        refused = wait_until(refusal)
        assert refused is not None
        assert refused.json()["error"]["message"] == "server is shutting down"
        assert list(lines)[-2:] == ["data: [DONE]", ""]
    assert simulator.process.wait(5) == 0


def test_a_stream_that_outlasts_the_drain_ends_with_an_error_event(start: Start) -> None:
    simulator = start("--mode", "echo", "--inter-token-latency", "30s", "--drain-timeout", "200ms")
    ask = {"model": "test-model", "prompt": "a b c", "stream": True}
    with (
        httpx.Client(base_url=simulator.url, timeout=20) as client,
        client.stream("POST", "/v1/completions", json=ask) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        simulator.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert '"code":503' in rest[-2] and rest[-1] == "data: [DONE]"
    assert simulator.process.wait(5) == 0


def test_a_hundred_pods_in_one_process(start: Start) -> None:
    port = fresh_span(100)
    simulator = Simulator("--pods", "100", "--mode", "echo", "--max-num-seqs", "64", "--port", str(port))
    simulator.port = port
    simulator.wait_ready()
    try:
        names = set()
        with httpx.Client(timeout=20) as client:
            for number in range(100):
                answer = client.post(f"http://127.0.0.1:{port + number}/v1/chat/completions", json=CHAT)
                names.add(answer.headers["x-inference-pod"])
            page = client.get(f"http://127.0.0.1:{port + 7}/metrics").text
        assert names == {f"sim-{port + number}" for number in range(100)}
        assert 'vllm:request_success_total{finish_reason="stop",model_name="test-model"} 1\n' in page
        memory = Path(f"/proc/{simulator.process.pid}/status").read_text()
        resident = int(memory.split("VmRSS:")[1].split()[0])
        assert resident < 250_000
    finally:
        assert simulator.stop() == 0


def test_the_same_seed_answers_byte_for_byte(start: Start) -> None:
    def answers(port: int) -> list[bytes]:
        simulator = Simulator("--seed", "7", "--port", str(port))
        simulator.port = port
        simulator.wait_ready()
        with httpx.Client(base_url=simulator.url) as client:
            found = [client.post("/v1/chat/completions", json={**CHAT, "max_tokens": n}) for n in (3, 50, 500)]
        simulator.stop()
        return [answer.content.split(b'"created":')[0] + answer.content.split(b",", 4)[4] for answer in found]

    port = fresh_port()
    assert answers(port) == answers(port)


def test_tls_with_a_self_signed_certificate_and_with_files_that_change(start: Start, tmp_path: Path) -> None:
    simulator = Simulator("--self-signed-certs", "--mode", "echo")
    simulator.wait_ready(scheme="https")
    assert httpx.get(f"{simulator.url}/v1/models", verify=False).status_code == 200
    simulator.stop()

    def write() -> None:
        certificate, key = self_signed()
        (tmp_path / "key.pem").write_bytes(key)
        (tmp_path / "cert.pem").write_bytes(certificate)

    write()
    simulator = Simulator(
        "--ssl-certfile", str(tmp_path / "cert.pem"), "--ssl-keyfile", str(tmp_path / "key.pem")
    ).wait_ready(scheme="https")

    def served() -> str:
        return ssl.get_server_certificate(("127.0.0.1", simulator.port))

    before = served()
    write()
    wait_until(lambda: served() != before)
    simulator.stop()


def test_bad_flags_are_one_sentence_and_exit_2() -> None:
    def complaint(*flags: str) -> str:
        done = subprocess.run(
            [".venv/bin/llm-d-inference-sim", *flags], capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 2
        return done.stderr

    assert "--model is missing" in complaint()
    assert "did you mean --inter-token-latency" in complaint("--model", "m", "--inter-token-latenci", "1s")
    assert "--block-size is 17: choose from 8, 16" in complaint("--model", "m", "--block-size", "17")
    assert "write a number with a unit" in complaint("--model", "m", "--time-to-first-token", "fast")

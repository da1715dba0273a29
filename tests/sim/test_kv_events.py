"""KV events over real ZMQ sockets, decoded by an independent reader; cached tokens; ranks; transfers."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import zmq
from tests.ports import fresh_span
from tests.sim.simulator import Simulator, Start

from pointsman.sim.text import hashing, tokens

TEXT = "The quick brown fox jumps over the lazy dog and then runs far away from it all again today, doesn't it? "


class Subscriber:
    """Binds, as a picker does, and reads messages."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self.context.socket(zmq.SUB)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.socket.subscribe(b"")
        self.socket.setsockopt(zmq.RCVTIMEO, 5000)

    def settle(self) -> None:
        """Let the subscription reach a publisher that has just connected; a socket acts only while it is asked."""
        assert not self.socket.poll(300)

    def receive(self) -> tuple[str, int, list[Any]]:
        topic, number, payload = self.socket.recv_multipart()
        return topic.decode(), struct.unpack(">Q", number)[0], msgspec.msgpack.decode(payload)

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    made = Subscriber()
    yield made
    made.close()


def ask(simulator: Simulator, prompt: str, **more: object) -> dict[str, Any]:
    body = {"model": "test-model", "prompt": prompt, **more}
    answer = httpx.post(f"{simulator.url}/v1/completions", json=body, timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def cache_flags(subscriber: Subscriber, *more: str) -> list[str]:
    flags = ["--enable-kvcache", "--kv-cache-size", "64", "--block-size", "8", "--mode", "echo"]
    return [*flags, "--zmq-endpoint", f"tcp://127.0.0.1:{subscriber.port}", "--event-batch-size", "1", *more]


def test_stored_blocks_are_announced_with_their_tokens_and_hashes(start: Start, subscriber: Subscriber) -> None:
    simulator = start(*cache_flags(subscriber), env={"POD_IP": "10.1.2.3"})
    subscriber.settle()
    first = ask(simulator, TEXT)
    topic, number, (stamp, events, rank) = subscriber.receive()
    assert topic == f"kv@10.1.2.3:{simulator.port}@test-model"
    assert (number, rank) == (1, 0) and abs(stamp - time.time()) < 10
    (event,) = events
    ids = tokens.encode(TEXT)
    keys = hashing.chain(ids, start=hashing.root("test-model"), block_size=8)
    kind, hashes, parent, stored, size, lora_id, medium, lora_name, extra = event
    assert (kind, hashes, parent, size) == ("BlockStored", keys, None, 8)
    assert stored == ids[: len(keys) * 8]
    assert (lora_id, medium, lora_name, extra) == (None, "GPU", None, None)
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    second = ask(simulator, TEXT + "And more.")
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": len(keys) * 8}
    assert simulator.metric("vllm:prefix_cache_hits_total") == len(keys) * 8


def test_events_reach_a_subscriber_at_an_address_of_ipv6(start: Start) -> None:
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.SUB)
    socket.setsockopt(zmq.IPV6, 1)
    port = socket.bind_to_random_port("tcp://[::1]")
    socket.subscribe(b"")
    simulator = start("--enable-kvcache", "--event-batch-size", "1", "--zmq-endpoint", f"tcp://[::1]:{port}")
    for turn in range(50):  # the first ones may leave before the subscription has arrived
        ask(simulator, f"{turn} {TEXT}", max_tokens=1)
        if socket.poll(100):
            break
    assert socket.recv_multipart(zmq.NOBLOCK)[0].endswith(b"@test-model")
    socket.close(linger=0)
    context.term()


def test_a_bad_endpoint_ends_the_start_before_it_says_ready() -> None:
    simulator = Simulator("--enable-kvcache", "--zmq-endpoint", "nonsense")
    _, said = simulator.process.communicate(timeout=30)
    assert simulator.process.returncode != 0
    assert "nonsense cannot be used for KV events" in said and "ready" not in said


def test_maps_and_evictions(start: Start, subscriber: Subscriber) -> None:
    simulator = start(*cache_flags(subscriber, "--use-vllm-map-event-format", "--kv-cache-size", "12"))
    subscriber.settle()
    ask(simulator, TEXT, max_tokens=1)
    ask(simulator, "Something else entirely, with as many words as the one before it had, more or less: yes. " * 2)
    seen: list[dict[str, Any]] = []
    while "BlockRemoved" not in {event["type"] for event in seen}:
        seen += subscriber.receive()[2][1]
    stored = [event for event in seen if event["type"] == "BlockStored"]
    removed = [event for event in seen if event["type"] == "BlockRemoved"]
    assert stored[0]["parent_block_hash"] is None and stored[0]["block_size"] == 8
    known = {key for event in stored for key in event["block_hashes"]}
    assert all(set(event["block_hashes"]) <= known for event in removed)
    httpx.post(f"{simulator.url}/reset_prefix_cache")
    while "AllBlocksCleared" not in {event["type"] for event in seen}:
        seen += subscriber.receive()[2][1]


def test_past_events_can_be_asked_for(start: Start, subscriber: Subscriber) -> None:
    replay = fresh_span(2)
    simulator = start(*cache_flags(subscriber, "--kv-events-replay-endpoint", f"tcp://127.0.0.1:{replay}"))
    for turn in range(3):
        ask(simulator, f"{turn} {TEXT}")
    asking: zmq.Socket[bytes] = subscriber.context.socket(zmq.DEALER)
    asking.connect(f"tcp://127.0.0.1:{replay}")
    asking.setsockopt(zmq.RCVTIMEO, 5000)
    asking.send_multipart([b"", b"not a question"])
    asking.send_multipart([b"", struct.pack(">Q", 2)])
    numbers = []
    while True:
        _, topic, number, payload = asking.recv_multipart()
        if topic == b"":
            assert (number, payload) == (b"\xff" * 8, b"")
            break
        numbers.append(struct.unpack(">Q", number)[0])
    asking.close(linger=0)
    assert numbers[0] == 2 and numbers == sorted(numbers)


def test_ranks_have_ports_and_engine_ids_of_their_own(start: Start) -> None:
    port = fresh_span(2)
    simulator = Simulator("--data-parallel-size", "2", "--mode", "echo", "--port", str(port))
    simulator.port = port
    simulator.wait_ready()
    ids = [httpx.get(f"http://127.0.0.1:{port + rank}/query").json() for rank in (0, 1)]
    assert ids[0] == ids[1] and set(ids[0]) == {"0", "1"}
    assert httpx.get(f"http://127.0.0.1:{port + 1}/v1/models").headers["x-inference-port"] == str(port + 1)
    simulator.stop()


def test_disaggregated_prefill(start: Start) -> None:
    simulator = start("--mode", "echo", "--time-to-first-token", "1s", "--kv-cache-transfer-latency", "100ms")
    prefill = ask(simulator, "a b", kv_transfer_params={"do_remote_decode": True}, max_tokens=1)
    assert simulator.metric("vllm:time_to_first_token_seconds_sum") == pytest.approx(1.0)
    assert prefill["choices"][0]["finish_reason"] == "remote_decode"
    handed = prefill["kv_transfer_params"]
    assert handed["do_remote_prefill"] is True and handed["remote_port"] == 1234
    ask(simulator, "a b", kv_transfer_params={**handed, "remote_block_ids": [1, 2]})
    assert simulator.metric("vllm:time_to_first_token_seconds_sum") == pytest.approx(1.1)


def test_a_prompt_below_the_hit_threshold_is_sent_back(start: Start) -> None:
    simulator = start("--enable-kvcache", "--zmq-endpoint", "", "--block-size", "8", "--mode", "echo")
    refused = ask(simulator, TEXT, cache_hit_threshold=0.5)
    assert refused["choices"][0]["finish_reason"] == "cache_threshold"
    assert refused["usage"]["completion_tokens"] == 0
    ask(simulator, TEXT)
    assert ask(simulator, TEXT, cache_hit_threshold=0.5)["choices"][0]["finish_reason"] == "stop"

"""KV cache events over ZMQ, in vLLM's wire format: what was cached and what was evicted, batched, numbered, replayable.

Encoding is pure (`encode_batch`). The publisher dials the subscriber, as llm-d's pods do (an endpoint for all
addresses, such as tcp://*:5557, it binds, as vLLM does), and never blocks the engine: messages that the socket cannot
take are kept for replay and counted as dropped, not waited for. Numbers start at 1 and have no gaps. A batch leaves
when it is full, and otherwise within a second.

A first block has no parent. Readers tell that by nil: the router refuses a whole batch whose parent is the number 0.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from pointsman.core.errors import UserError
from pointsman.core.numbers import whole
from pointsman.sim.engine.engine import BlockEvent, BlockRemoved, BlockStored

MEDIUM = "GPU"
FLUSH_SECONDS = 1.0
END = (b"", b"\xff" * 8, b"")  # closes a replay
_SEQUENCE = struct.Struct(">Q")


def encode_event(event: BlockEvent, *, block_size: int, as_map: bool) -> Any:
    """Return an event as the list or the map that goes on the wire."""
    match event:
        case BlockStored():
            return _stored_map(event, block_size) if as_map else _stored_list(event, block_size)
        case BlockRemoved():
            if as_map:
                return {"type": "BlockRemoved", "block_hashes": [event.key], "medium": MEDIUM}
            return ["BlockRemoved", [event.key], MEDIUM]
    return {"type": "AllBlocksCleared"} if as_map else ["AllBlocksCleared"]


def _stored_list(event: BlockStored, block_size: int) -> list[Any]:
    lora_id = None if event.lora is None else 1
    return ["BlockStored", event.keys, event.parent, event.tokens, block_size, lora_id, MEDIUM, event.lora, None]


def _stored_map(event: BlockStored, block_size: int) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": event.keys,
        "parent_block_hash": event.parent,
        "token_ids": event.tokens,
        "block_size": block_size,
        "lora_id": None if event.lora is None else 1,  # vLLM's classes have no default for this one
        "medium": MEDIUM,
        "lora_name": event.lora,
    }


def encode_batch(events: Sequence[BlockEvent], *, now: float, rank: int, block_size: int, as_map: bool) -> bytes:
    """Return the payload of one message."""
    shown = [encode_event(event, block_size=block_size, as_map=as_map) for event in events]
    return msgspec.msgpack.encode([now, shown, rank])


class Publisher:
    """Sends one pod's events, and answers for the past ones."""

    def __init__(
        self,
        *,
        context: "zmq.Context[zmq.Socket[bytes]]",
        topic: str,
        endpoint: str,
        replay_endpoint: str = "",
        replay_size: int = 1024,
        batch_size: int = 16,
        block_size: int = 16,
        as_map: bool = False,
        rank: int = 0,
        wall: Callable[[], float],
    ) -> None:
        self.topic = topic.encode()
        self.dropped = 0
        self._batch_size = batch_size
        self._encode: Callable[[Sequence[BlockEvent]], bytes] = lambda events: encode_batch(
            events, now=wall(), rank=rank, block_size=block_size, as_map=as_map
        )
        self._pending: list[BlockEvent] = []
        self._sent = 0
        self._past: deque[tuple[int, bytes]] = deque(maxlen=replay_size)
        self._out: zmq.Socket[bytes] | None = None
        self._replay: zmq.asyncio.Socket | None = None
        if endpoint:
            self._out = context.socket(zmq.PUB)
            _attach(self._out, self._out.bind if _for_all(endpoint) else self._out.connect, endpoint)
        if replay_endpoint:
            self._replay = zmq.asyncio.Context.shadow(context).socket(zmq.ROUTER)
            _attach(self._replay, self._replay.bind, replay_endpoint)

    def publish(self, events: list[BlockEvent]) -> None:
        """Take over the events; full batches leave now."""
        self._pending += events
        events.clear()
        while len(self._pending) >= self._batch_size:
            self._send(self._pending[: self._batch_size])
            del self._pending[: self._batch_size]

    def flush(self) -> None:
        """Send what is waiting for a full batch."""
        if self._pending:
            self._send(self._pending)
            self._pending = []

    def _send(self, events: Sequence[BlockEvent]) -> None:
        self._sent += 1
        payload = self._encode(events)
        self._past.append((self._sent, payload))
        if self._out is None:
            return
        try:
            self._out.send_multipart([self.topic, _SEQUENCE.pack(self._sent), payload], flags=zmq.NOBLOCK)
        except zmq.Again:
            self.dropped += 1

    async def run(self) -> None:
        """Flush every second and answer replays, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._flush_forever())
                if self._replay is not None:
                    group.create_task(self._answer_replays(self._replay))
        finally:
            self.flush()
            self.close()

    async def _flush_forever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self.flush()

    async def _answer_replays(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue  # not a question that we know
            peer, start = frames[0], _SEQUENCE.unpack(frames[2])[0]
            for number, payload in [entry for entry in self._past if entry[0] >= start]:
                await socket.send_multipart([peer, b"", self.topic, _SEQUENCE.pack(number), payload])
            await socket.send_multipart([peer, b"", *END])

    def close(self) -> None:
        """Close the sockets; what is queued has a moment to leave."""
        for socket in (self._out, self._replay):
            if socket is not None:
                socket.close(linger=200)


def _for_all(endpoint: str) -> bool:
    """Whether an endpoint stands for every address of this machine: nobody can be dialled there."""
    return endpoint.startswith(("tcp://*:", "tcp://[::]:", "ipc://"))


def _attach(socket: "zmq.Socket[Any]", attach: Callable[[str], Any], endpoint: str) -> None:
    if endpoint.count("[") != endpoint.count("]:"):
        socket.close(linger=0)
        raise UserError(f"{endpoint} cannot be used for KV events: write an IPv6 address as tcp://[ADDRESS]:PORT")
    if "[" in endpoint:
        socket.setsockopt(zmq.IPV6, 1)  # without it such an address is taken, and nothing ever arrives
    try:
        attach(endpoint)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise UserError(f"{endpoint} cannot be used for KV events: {error.strerror or error}") from None


def shift_port(endpoint: str, by: int) -> str:
    """Return the endpoint with its port moved, so that ranks do not share one.

    Raises UserError when it has no port.
    """
    if not endpoint or not by:
        return endpoint
    head, colon, port = endpoint.rpartition(":")
    number = whole(port, most=65_535)
    if not colon or number is None:
        raise UserError(f"{endpoint} has no port: write an endpoint such as tcp://127.0.0.1:5557")
    return f"{head}:{number + by}"

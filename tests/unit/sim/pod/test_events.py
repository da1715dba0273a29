"""KV events on the wire, read by the classes that vLLM itself publishes with."""

from typing import Any

import msgspec
import pytest
import zmq

from pointsman.core.errors import UserError
from pointsman.sim.engine.engine import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored
from pointsman.sim.pod.events import Publisher, encode_batch, shift_port


class Event(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    """vLLM up to 0.23: arrays, the class name first."""


class Mapped(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """vLLM from 0.24 on: maps."""


def stored(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    # no default before extra_keys, as in vLLM: a reader of its classes refuses a map that leaves one out
    fields: list[Any] = [
        ("block_hashes", list[int | bytes]),
        ("parent_block_hash", int | bytes | None),
        ("token_ids", list[int]),
        ("block_size", int),
        ("lora_id", int | None),
        ("medium", str | None),
        ("lora_name", str | None),
        ("extra_keys", list[Any] | None, None),
    ]
    return msgspec.defstruct("BlockStored", fields, bases=(kind,), tag="BlockStored")


def removed(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    fields = [("block_hashes", list[int | bytes]), ("medium", str | None)]
    return msgspec.defstruct("BlockRemoved", fields, bases=(kind,), tag="BlockRemoved")


EVENTS: list[BlockEvent] = [
    BlockStored([5, 2**64 - 1], None, [1, 2, 3, 4], None),
    BlockStored([7], 5, [1, 2], "adapter"),
    BlockRemoved(5),
    AllBlocksCleared(),
]


@pytest.mark.parametrize("as_map", [pytest.param(False, id="arrays"), pytest.param(True, id="maps")])
def test_vllms_own_classes_read_our_events(as_map: bool) -> None:
    kind: type[msgspec.Struct] = Mapped if as_map else Event
    store, remove = stored(kind), removed(kind)
    clear = msgspec.defstruct("AllBlocksCleared", [], bases=(kind,), tag="AllBlocksCleared")
    batch = msgspec.defstruct(
        "KVEventBatch",
        [("ts", float), ("events", list[store | remove | clear]), ("data_parallel_rank", int | None, None)],  # type: ignore[valid-type]
        array_like=True,
    )
    payload = encode_batch(EVENTS, now=12.5, rank=3, block_size=2, as_map=as_map)
    read: Any = msgspec.msgpack.decode(payload, type=batch)
    assert (read.ts, read.data_parallel_rank) == (12.5, 3)
    first, second, gone, _ = read.events
    assert first == store([5, 2**64 - 1], None, [1, 2, 3, 4], 2, None, "GPU", None)
    assert second == store([7], 5, [1, 2], 2, 1, "GPU", "adapter")
    assert gone == remove([5], "GPU")


@pytest.mark.parametrize(
    ("endpoint", "rank", "shifted"),
    [
        pytest.param("tcp://*:5557", 0, "tcp://*:5557", id="first"),
        pytest.param("tcp://*:5557", 3, "tcp://*:5560", id="wildcard"),
        pytest.param("tcp://[::1]:5557", 2, "tcp://[::1]:5559", id="IPv6"),
        pytest.param("", 2, "", id="none"),
    ],
)
def test_a_rank_has_the_port_that_vllm_gives_it(endpoint: str, rank: int, shifted: str) -> None:
    assert shift_port(endpoint, rank) == shifted


def test_an_endpoint_without_a_port_is_refused() -> None:
    with pytest.raises(UserError, match="has no port"):
        shift_port("ipc://events", 1)


@pytest.mark.parametrize("endpoint", ["tcp://[::1:5557", "tcp://[::1]5557", "tcp://127.0.0.1", "http://a:1"])
def test_an_endpoint_that_nothing_can_be_sent_to_is_refused(endpoint: str) -> None:
    with zmq.Context() as context, pytest.raises(UserError, match="cannot be used for KV events"):
        Publisher(context=context, topic="t", endpoint=endpoint, wall=lambda: 0.0)

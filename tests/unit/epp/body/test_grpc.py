"""Requests of gRPC services: what is read of them, and which are refused."""

import json
import struct

import pytest

from pointsman.epp.body.grpc import VertexReading, VllmReading
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import Needs, Prompt
from pointsman.wire.protobuf import encode_field, varint

NEEDS = Needs(body=True, prompt=True, block_tokens=64)


def frame(message: bytes, *, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(message)) + message


def tokenized(*ids: int, text: str = "") -> bytes:
    packed = b"".join(map(varint, ids))
    return encode_field(2, encode_field(1, text.encode()) + encode_field(2, packed))


def prompt_of(message: bytes, needs: Needs = NEEDS) -> Prompt:
    prompt = VllmReading(frame(message), needs=needs).prompt()
    assert prompt is not None
    return prompt


def test_a_prompt_in_tokens() -> None:
    ids = [1, 300, 2**32 - 1, 5] * 40
    prompt = prompt_of(encode_field(1, b"id") + tokenized(*ids, text="x") + encode_field(4, b"\x40\x07"))
    same = BodyReading(json.dumps({"prompt": ids}).encode(), needs=NEEDS).prompt()
    assert same is not None
    assert (prompt.tokens, list(prompt.blocks), prompt.max_output_tokens) == (160, list(same.blocks), 7)


def test_only_the_tokens_that_are_hashed_are_read_one_by_one() -> None:
    needs = Needs(body=True, prompt=True, block_tokens=64, max_blocks=2)
    prompt = prompt_of(tokenized(*range(1000, 2000)), needs)
    assert (prompt.tokens, len(prompt.blocks)) == (1000, 2)


def test_a_prompt_in_text() -> None:
    prompt = prompt_of(encode_field(3, b"hello world!"))
    same = BodyReading(b'{"prompt":"hello world!"}', needs=NEEDS).prompt()
    assert same is not None
    assert (prompt.tokens, list(prompt.blocks)) == (3, list(same.blocks))


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b"\0\0\0",
        frame(tokenized(1))[:-1],
        frame(tokenized(1), compressed=1),
        frame(b"\xff\xff"),
        frame(encode_field(1, b"no prompt")),
        frame(b""),
    ],
)
@pytest.mark.parametrize("kind", [VllmReading, VertexReading])
def test_garbage_is_refused(kind: type[VllmReading] | type[VertexReading], body: bytes) -> None:
    with pytest.raises(BadRequest):
        kind(body, needs=NEEDS)


def test_vertex_wraps_json() -> None:
    inner = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
    message = encode_field(1, b"endpoint") + encode_field(
        2, encode_field(1, b"application/json") + encode_field(2, inner)
    )
    reading = VertexReading(frame(message), needs=NEEDS)
    prompt, same = reading.prompt(), BodyReading(inner, needs=NEEDS).prompt()
    assert prompt is not None and same is not None
    assert (reading.model, list(prompt.blocks)) == ("m", list(same.blocks))
    assert reading.naming("other") == reading.body == frame(message)

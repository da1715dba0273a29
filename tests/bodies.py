"""Bodies that no client should send, each around a text of the caller's: what tests of hostile input have in common."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

DIGITS = "9" * 5000  # more than Python turns into a number

TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "required": ["a"], "properties": {"a": {"enum": [10**30]}}},
    },
}


def _put(**members: str) -> Callable[[str, str], bytes]:
    """Return a completion with more members, each as JSON."""

    def make(model: str, text: str) -> bytes:
        body = {"model": json.dumps(model), "prompt": json.dumps(text), **members}
        return ("{" + ",".join(f'"{name}": {value}' for name, value in body.items()) + "}").encode()

    return make


def _plain(model: str, text: str, **more: Any) -> bytes:
    return json.dumps({"model": model, "prompt": text, **more}).encode()


BODIES: Mapping[str, Callable[[str, str], bytes]] = {
    "huge max_tokens": _put(max_tokens=DIGITS),
    "huge negative max_tokens": _put(max_tokens=f"-{DIGITS}"),
    "max_tokens that just fits Python": _put(max_tokens="9" * 4300),
    "huge number nobody reads": _put(nobody=DIGITS),
    "huge float": _put(temperature=f"{DIGITS}.5"),
    "huge exponent": _put(max_tokens="1e999999999"),
    "more than a float holds": _put(cache_hit_threshold="1" + "0" * 400),
    "n of 30 digits": _put(n="9" * 30),
    "wrong types": _put(max_tokens='"many"', stop="7", stream='"yes"'),
    "huge token": lambda model, text: _plain(model, text).replace(json.dumps(text).encode(), f"[1,{DIGITS}]".encode()),
    "token of 70 bits": lambda model, text: _plain(model, text)[:-1] + b', "tokens": [1180591620717411303424]}',
    "negative token": lambda model, text: _plain(model, text)[:-1] + b', "tokens": [-1, 2.5, null]}',
    "huge number in a message": lambda model, text: (
        f'{{"model": "{model}", "messages": [{{"role": "user", "content": [{{"type": "text", "text": "{text}"}}, '
        f'{{"type": "image_url", "image_url": {{"url": "http://a/b", "n": {DIGITS}}}}}]}}]}}'
    ).encode(),
    "huge feature": _put(
        features=f'{{"mm_hashes": {{"image": ["a"]}}, "mm_placeholders": {{"image": [{{"length": {DIGITS}}}]}}}}'
    ),
    "deep": _put(tools="[" * 100_000 + "]" * 100_000),
    "deep prompt": lambda model, text: _plain(model, text)[:-1] + b', "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "not UTF-8": lambda model, text: _plain(model, text).replace(text.encode(), text.encode() + b"\xff\xfe"),
    "lone surrogate": lambda model, text: _plain(model, text).replace(text.encode(), text.encode() + b"\\ud800"),
    "lone surrogate in the model": lambda model, text: _plain(model, text).replace(b'"model": "', b'"model": "\\udfff'),
    "cut off": lambda model, text: _plain(model, text)[:-3],
    "cut off in an escape": lambda model, text: _plain(model, text)[:-2] + b"\\u00",
    "control character": lambda model, text: _plain(model, text).replace(text.encode(), text.encode() + b"\x00\x01"),
    "many keys": lambda model, text: b'{"prompt": "",' * 1 + b'"prompt": "x",' * 20_000 + _plain(model, text)[1:],
    "no object": lambda _, text: json.dumps([text]).encode(),
    "a number": lambda _, __: DIGITS.encode(),
    "empty": lambda _, __: b"",
    "not JSON": lambda _, text: text.encode(),
    "model that is not there": lambda _, text: _plain("nobody", text),
    "model of the wrong type": lambda _, text: json.dumps({"model": {"a": 1}, "prompt": text}).encode(),
    "long model": lambda _, text: _plain("m" * 5000, text),
    "tools": _put(tools=json.dumps([TOOL]), tool_choice='"required"'),
    "metadata": _put(metadata=f'{{"a": {"9" * 30}}}', input='"hello"', messages='[{"role": "user", "content": "x"}]'),
}  # fmt: skip


def broken(draw: random.Random, model: str, text: str) -> bytes:
    """Return one of the bodies, or a good one with some bytes changed."""
    body = draw.choice(list(BODIES.values()))(model, text)
    if draw.random() < 0.3:
        body = _plain(model, text, max_tokens=3)
    if draw.random() < 0.5 and body:
        damaged = bytearray(body)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        body = bytes(damaged)
    return body

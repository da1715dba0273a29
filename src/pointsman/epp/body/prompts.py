"""What a prompt weighs, and its identity for the prefix cache.

Without a tokenizer a token is four bytes of text, as the Go picker's estimate has it; where the client sent token ids
they are taken as they are. A prompt is therefore always a string of bytes, four to a token, and its blocks are slices.

The chain: h0 is the hash of model and cache salt, then each block's hash is mixed with the hash before it, so equal
hashes mean equal beginnings. The last block may be partial. It costs two xxh64 per block (about 0.25 µs, 0.2 ms for a
prompt of 220 KB), and is made only when a plugin asked for it.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from xxhash import xxh64_intdigest

from pointsman.epp.body.media import KINDS, identity_of
from pointsman.epp.request.estimate import Placeholders
from pointsman.epp.request.request import Needs

TOKEN_BYTES = 4
MOST_CHAINS = 64
"""Prompts of one request that are hashed. A client can send a million in four megabytes, and each costs microseconds
here, in the index and in the memory of whoever keeps the request; a batch that shares anything shows it in these.
"""
_PAIR = struct.Struct("<QQ")


def count_tokens(text: bytes) -> int:
    """Return how many tokens a prompt's bytes are."""
    return -(-len(text) // TOKEN_BYTES)


def seed(model: bytes) -> int:
    """Return what the chain of a model's prompts begins with; a cache salt follows the name."""
    return xxh64_intdigest(model)


def hash_chain(
    text: bytes, *, model: str, salt: str, block_tokens: int, max_blocks: int, known: "BlockHasher | None" = None
) -> list[int]:
    """Return the hash of each block with all that comes before it; at most `max_blocks` of them, 0 for all.

    What is `known` of the text's beginning is not hashed again.
    """
    size = block_tokens * TOKEN_BYTES
    stop = min(len(text), size * max_blocks) if max_blocks else len(text)
    whole = stop - stop % size
    pack, digest = _PAIR.pack, xxh64_intdigest
    last = seed((model + salt).encode())
    chain = known.chain(last, most=stop // size) if known is not None else []
    last = chain[-1] if chain else last
    rest = memoryview(text)[len(chain) * size : whole]
    chain += [last := digest(pack(digest(block), last)) for (block,) in _blocks(size).iter_unpack(rest)]
    if whole < stop:
        part = text[whole:stop] + b"\0" * (-stop % TOKEN_BYTES)
        chain.append(digest(pack(digest(part), last)))
    return chain


def hash_chains(
    texts: Iterable[bytes], *, model: str, salt: str = "", needs: Needs, known: "BlockHasher | None" = None
) -> list[list[int]]:
    """Return the chain of each prompt that is not empty, `MOST_CHAINS` at most; `known` is of the first."""
    chains: list[list[int]] = []
    for text in texts if needs.block_tokens else ():
        if text:
            chain = hash_chain(
                text,
                model=model,
                salt=salt,
                block_tokens=needs.block_tokens,
                max_blocks=needs.max_blocks,
                known=known,
            )
            chains.append(chain)
        known = None
        if len(chains) == MOST_CHAINS:
            break
    return chains


@lru_cache(maxsize=64)
def _blocks(size: int) -> struct.Struct:
    """Return what cuts a text into blocks; the quickest way to do so."""
    return struct.Struct(f"{size}s")


class BlockHasher:
    """The chain of a text that comes in pieces, as far as its blocks are whole."""

    __slots__ = ("_chain", "_last", "_rest", "_seed", "_size")

    def __init__(self, start: int, *, block_tokens: int) -> None:
        self._size = block_tokens * TOKEN_BYTES
        self._seed = self._last = start
        self._chain: list[int] = []
        self._rest = b""

    def feed(self, text: bytes) -> None:
        """Take the next piece."""
        size, rest, last = self._size, self._rest, self._last
        begin = size - len(rest) if rest else 0  # what the open block lacks
        if begin > len(text):
            self._rest = rest + text
            return
        pack, digest = _PAIR.pack, xxh64_intdigest
        if rest:
            last = digest(pack(digest(rest + text[:begin]), last))
            self._chain.append(last)
        stop = len(text) - (len(text) - begin) % size
        self._rest = text[stop:]
        whole = memoryview(text)[begin:stop]
        self._chain += [last := digest(pack(digest(block), last)) for (block,) in _blocks(size).iter_unpack(whole)]
        self._last = last

    def chain(self, start: int, *, most: int) -> list[int]:
        """Return the first blocks of the chain; nothing when it should have begun otherwise."""
        return self._chain[:most] if start == self._seed else []


def token_bytes(ids: Sequence[Any]) -> bytes:
    """Return token ids as bytes; nothing when they are no token ids."""
    try:
        packed = array("I", ids)
    except (TypeError, OverflowError):
        return b""
    if packed.itemsize != TOKEN_BYTES:  # pragma: no cover - no platform of ours
        return struct.pack(f"<{len(ids)}I", *ids)
    return packed.tobytes()


def completion_texts(prompt: Any) -> list[bytes]:
    """Return the bytes of a `prompt` or `input`: a string, strings, token ids, or lists of token ids; one for each."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return [_one_prompt(each) for each in prompt]
    return [_one_prompt(prompt)]


def _one_prompt(prompt: Any) -> bytes:
    """Return the bytes of one of several prompts; what is nested any deeper is none."""
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "replace")
    return token_bytes(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], int) else b""


def conversation_text(messages: Any, *, media: Placeholders, before: Iterable[str] = ()) -> tuple[bytes, bool]:
    """Return the bytes of a conversation, and whether a message holds an image, a video or sound."""
    parts: list[str] = list(before)
    multimodal = False
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, str):
            parts.append(message)
        elif isinstance(message, dict):
            role, content = message.get("role"), message.get("content")
            if isinstance(role, str):
                parts.append(role)
            if isinstance(content, str):
                parts.append(content)
            elif isinstance(content, list):
                multimodal |= _read_blocks(content, parts, media)
            elif not isinstance(role, str) and isinstance(
                message.get("type"), str
            ):  # an item that is no message: a function's call, or what it returned
                parts.append(_written(message))
            if message.get("tool_calls"):
                parts.append(_written(message["tool_calls"]))
    return "".join(parts).encode("utf-8", "replace"), multimodal


def _read_blocks(blocks: list[Any], parts: list[str], media: Placeholders, *, within: bool = False) -> bool:
    """Add the text of content blocks, and what stands for their media; of tools and thoughts what is said of them."""
    multimodal = False
    for block in blocks:
        if not isinstance(block, dict):
            continue
        kind, text = block.get("type"), block.get("text")
        if isinstance(text, str):
            parts.append(text)
        elif isinstance(kind, str) and kind in KINDS:
            multimodal = True
            parts.append(media.text(kind, identity_of(block, kind)))
        elif not isinstance(kind, str):
            continue
        elif isinstance(inner := block.get("content"), list) and not within:  # a tool's result, in blocks of its own
            parts.append(_written({**block, "content": None}))
            multimodal |= _read_blocks(inner, parts, media, within=True)
        else:
            parts.append(_written(block))
    return multimodal


def _written(value: Any) -> str:
    """Return a call, a result or a thought as text: equal ones are equal, and where a client wants them cached counts
    nothing, because it says so of another one with every turn.
    """
    if isinstance(value, dict) and "cache_control" in value:
        value = {key: each for key, each in value.items() if key != "cache_control"}
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):  # half of a surrogate pair, a number beyond 64 bits
        return repr(value)

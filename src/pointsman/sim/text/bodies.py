"""The request bodies that we read, as typed structures; everything that they do not name is ignored, as vLLM does.

Decoding is msgspec's: one pass, no intermediate dictionaries, and errors that name the path. `decode` turns those
into the 400 that clients of vLLM know. Nothing here has a meaning yet: `prompts` and `answers` give it one.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from pointsman.sim.failures import Refusal

B = TypeVar("B", bound=Struct)
Json = dict[str, Any]
_ANY = msgspec.json.Decoder()
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {}


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class KvTransfer(Struct):
    """Disaggregated prefill, as the sidecar of llm-d speaks it; block ids are numbers in vLLM, texts in the Go one."""

    do_remote_decode: bool | None = None
    do_remote_prefill: bool | None = None
    remote_engine_id: str | None = None
    remote_block_ids: list[Any] | None = None
    remote_host: str | None = None
    remote_port: int | str | None = None
    tp_size: int | None = None


class Common(Struct, kw_only=True):
    """What the generation endpoints have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    kv_transfer_params: KvTransfer | None = None
    cache_hit_threshold: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    priority: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None


class Message(Struct):
    role: str | None = None
    content: str | list[Json] | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None


class Shaped(Common, kw_only=True):
    """What asks for an answer of some shape."""

    response_format: Json | None = None
    structured_outputs: Json | None = None
    guided_json: str | Json | None = None
    guided_choice: list[str] | None = None
    guided_regex: str | None = None


class Chat(Shaped, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class Completion(Shaped, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None


class Responses(Common, kw_only=True):
    input: str | list[Json]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    text: Json | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    structured_outputs: Json | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: Json | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None


class Anthropic(Struct, kw_only=True):
    model: str | None = None
    messages: list[Message]
    max_tokens: int
    system: str | list[Json] | None = None
    tools: list[Json] | None = None
    tool_choice: Json | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    kv_transfer_params: KvTransfer | None = None


class CountTokens(Struct, kw_only=True):
    """A message that nobody answers."""

    model: str | None = None
    messages: list[Message]
    system: str | list[Json] | None = None


class Sampling(Struct):
    max_tokens: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    extra_args: Json | None = None


class Generate(Struct, kw_only=True):
    token_ids: list[int]
    sampling_params: Sampling
    model: str | None = None
    features: Json | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    request_id: str | None = None
    cache_hit_threshold: float | None = None
    kv_transfer_params: KvTransfer | None = None


class Embeddings(Struct, kw_only=True):
    input: str | list[str | int | list[int]]
    model: str | None = None
    dimensions: int | None = None
    encoding_format: str | None = None


class Tokenize(Struct, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool | None = None


class Detokenize(Struct, kw_only=True):
    tokens: list[int]
    model: str | None = None


class LoraChange(Struct, kw_only=True):
    lora_name: str
    lora_path: str | None = None


def decode(body: bytes, kind: type[B]) -> B:
    """Return the body as the structure.

    Raises Refusal 400 naming what is wrong and where.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    found: B = _read(decoder, body)
    return found


def decode_any(body: bytes) -> Any:
    """Return the body, whatever it is.

    Raises Refusal 400 when it is not JSON.
    """
    return _read(_ANY, body)


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refusal(400, f"Failed to read and parse request body, {error}") from None


def convert(value: Any, kind: type[B], *, where: str) -> B:
    """Return a decoded part of a body as the structure.

    Raises Refusal 400 naming the part.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"Failed to read and parse request body, {where}: {error}") from None

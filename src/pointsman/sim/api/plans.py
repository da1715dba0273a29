"""From any API's body to one `Plan`: what to generate, for whom, in which shape. One code path for meaning follows.

Each API has a function here that reads its fields; what they have in common is decided once, in `accept`. The order
of checks is llm-d-inference-sim's: a body that cannot be read, then injected failures and the model's name (by the
caller), then the values.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from pointsman.sim.api.chat import ChatWriter
from pointsman.sim.api.completions import TextWriter
from pointsman.sim.api.generate import GenerateWriter
from pointsman.sim.api.messages import MessagesWriter, conversation
from pointsman.sim.api.responses import ResponsesWriter, logprobs_wanted, messages_of
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.job import Writer
from pointsman.sim.jobs.spec import Spec
from pointsman.sim.text import bodies
from pointsman.sim.text.prompts import Prompt, from_field, from_ids, from_messages
from pointsman.sim.text.shapes import Shape, from_format, from_vllm

MOST_LOGPROBS = 20


class Plan(Struct, frozen=True):
    """A request, whichever API it came through."""

    model: str | None
    prompts: Callable[[], list[Prompt]]
    writer: Callable[[Spec], Writer]
    streaming: bool = False
    usage_wanted: bool = False
    n: int = 1
    max_tokens: int | None = None
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    threshold: float | None = None
    transfer: bodies.KvTransfer | None = None
    priority: int = 0
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: str | dict[str, Any] | None = None
    tool_style: str = "chat"
    tools_answered: bool = False  # the conversation already holds a tool's result
    logprobs: int = 0  # alternatives per token
    images: bool = False  # the API can show an image
    shape: Shape | None = None  # of the text, where one is asked for
    seed: int | None = None  # the same request with the same seed gets the same answer
    keeps: bool = False  # the whole answer can be asked for later
    as_ids: bool = False  # the answer is token ids rather than text


def chat(body: bytes) -> Plan:
    """Read /v1/chat/completions."""
    read = bodies.decode(body, bodies.Chat)
    top = (1 if read.top_logprobs is None else read.top_logprobs) if read.logprobs else None
    limit = read.max_tokens if read.max_completion_tokens is None else read.max_completion_tokens
    return Plan(
        **_common(read),
        prompts=lambda: [from_messages(read.messages)],
        writer=lambda spec: ChatWriter(spec, logprobs=top),
        logprobs=top or 0,
        max_tokens=limit,
        tools=read.tools or (),
        tool_choice=read.tool_choice,
        images=True,
        shape=_shape(read),
    )


def completion(body: bytes) -> Plan:
    """Read /v1/completions."""
    read = bodies.decode(body, bodies.Completion)
    return Plan(
        **_common(read),
        prompts=lambda: from_field(read.prompt),
        writer=lambda spec: TextWriter(spec, logprobs=read.logprobs),
        logprobs=read.logprobs or 0,
        max_tokens=read.max_tokens,
        shape=_shape(read),
    )


def _shape(read: bodies.Shaped) -> Shape | None:
    if read.response_format is not None:
        return from_format(read.response_format, name="response_format")
    if read.structured_outputs is not None:
        return from_vllm(read.structured_outputs)
    if read.guided_json is None and read.guided_choice is None and read.guided_regex is None:
        return None
    older = {"json": read.guided_json, "choice": read.guided_choice, "regex": read.guided_regex}
    return from_vllm(older, name="guided")


def responses(body: bytes) -> Plan:
    """Read /v1/responses."""
    read = bodies.decode(body, bodies.Responses)
    shape = from_format((read.text or {}).get("format"), name="text.format") or from_vllm(read.structured_outputs)
    messages, answered = messages_of(read.input, instructions=read.instructions)
    limit = read.max_tokens if read.max_output_tokens is None else read.max_output_tokens
    return Plan(
        **{**_common(read), "n": 1},
        prompts=lambda: [from_messages(messages)],
        writer=lambda spec: ResponsesWriter(spec, read=read),
        logprobs=logprobs_wanted(read) or 0,
        max_tokens=limit,
        tools=read.tools or (),
        tool_choice=read.tool_choice,
        tool_style="responses",
        tools_answered=answered,
        shape=shape,
        keeps=read.store is not False,
    )


def messages(body: bytes) -> Plan:
    """Read /v1/messages."""
    read = bodies.decode(body, bodies.Anthropic)
    return Plan(
        model=read.model,
        prompts=lambda: [from_messages(conversation(read))],
        writer=MessagesWriter,
        streaming=bool(read.stream),
        max_tokens=read.max_tokens,
        stop=read.stop_sequences or (),
        transfer=read.kv_transfer_params,
        tools=read.tools or (),
        tool_choice=read.tool_choice,
        tool_style="anthropic",
    )


def generate(body: bytes) -> Plan:
    """Read /inference/v1/generate."""
    read = bodies.decode(body, bodies.Generate)
    sampling, options = read.sampling_params, read.stream_options
    return Plan(
        model=read.model,
        prompts=lambda: [_with_media(from_ids(read.token_ids), read.features)],
        writer=GenerateWriter,
        streaming=bool(read.stream),
        usage_wanted=bool(options and options.include_usage),
        n=1 if sampling.n is None else sampling.n,
        max_tokens=sampling.max_tokens,
        ignore_eos=bool(sampling.ignore_eos),
        threshold=read.cache_hit_threshold,
        transfer=read.kv_transfer_params or _extra_transfer(sampling.extra_args),
        as_ids=True,
    )


def _extra_transfer(extra: bodies.Json | None) -> bodies.KvTransfer | None:
    found = (extra or {}).get("kv_transfer_params")
    if found is None:
        return None
    return bodies.convert(found, bodies.KvTransfer, where="sampling_params.extra_args.kv_transfer_params")


def _with_media(prompt: Prompt, features: bodies.Json | None) -> Prompt:
    hashes = (features or {}).get("mm_hashes")
    if isinstance(hashes, dict):
        prompt.media = [str(h) for group in hashes.values() if isinstance(group, list) for h in group]
    return prompt


def _common(read: bodies.Common) -> dict[str, Any]:
    options = read.stream_options
    return {
        "model": read.model,
        "streaming": bool(read.stream),
        "usage_wanted": bool(options and options.include_usage),
        "n": 1 if read.n is None else read.n,
        "ignore_eos": bool(read.ignore_eos),
        "stop": (read.stop,) if isinstance(read.stop, str) else tuple(read.stop or ()),
        "threshold": read.cache_hit_threshold,
        "transfer": read.kv_transfer_params,
        "priority": read.priority or 0,
        "seed": read.seed,
    }


def validate(plan: Plan) -> None:
    """Raise Refusal 400 if the plan's values make no sense."""
    for rule in RULES:
        complaint = rule(plan)
        if complaint:
            raise Refusal(400, complaint)


def _choices(plan: Plan) -> str | None:
    return "n must be at least 1" if plan.n < 1 else None


def _too_many(plan: Plan) -> str | None:
    return "n must be at most 1024" if plan.n > 1024 else None


def _positive(plan: Plan) -> str | None:
    if plan.max_tokens is not None and plan.max_tokens < 1:
        return "Max completion tokens and max tokens should be positive"
    return None


def _prefill(plan: Plan) -> str | None:
    if plan.streaming and plan.transfer and plan.transfer.do_remote_decode:
        return "Prefill does not support streaming"
    return None


def _eos(plan: Plan) -> str | None:
    if plan.ignore_eos and plan.max_tokens is None:
        return "Ignore_eos is true but max_completion_tokens (or max_tokens) is not set"
    return None


def _logprobs(plan: Plan) -> str | None:
    if not 0 <= plan.logprobs <= MOST_LOGPROBS:
        return f"logprobs and top_logprobs must be between 0 and {MOST_LOGPROBS}"
    return None


def _threshold(plan: Plan) -> str | None:
    if plan.threshold is not None and not 0 <= plan.threshold <= 1:
        return "cache_hit_threshold must be between 0 and 1"
    return None


RULES = (
    _choices,  # nothing to answer
    _too_many,  # one request must not fill the queue of everybody
    _positive,  # vLLM refuses an empty answer
    _prefill,  # the sidecar reads the transfer parameters from a whole body
    _eos,  # without a limit the answer would never end
    _logprobs,  # vLLM's own limit; without one a single number could ask for all our memory
    _threshold,  # a share
)

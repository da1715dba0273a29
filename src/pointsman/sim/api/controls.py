"""The routes that generate nothing: models, adapters, tokens, embeddings, health, sleep, and the rest.

Each is a small function of the pod and a request. They answer at once and raise `Refusal` for what they cannot do.
"""

import base64
import os
import struct
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from pointsman.core.http import Request, Response
from pointsman.core.lines import cut
from pointsman.sim.api.intake import resolve
from pointsman.sim.api.messages import conversation
from pointsman.sim.failures import Refusal
from pointsman.sim.pod.pod import Pod
from pointsman.sim.text import bodies, tokens
from pointsman.sim.text.prompts import Prompt, from_field, from_messages

METRICS = b"text/plain; version=0.0.4; charset=utf-8"
_MOST_NUMBERS = 4_000_000  # in all embeddings of one answer
VERSION = "0.19.0"  # the vLLM whose API and scheduler we follow


def reply(document: Any, *, status: int = 200) -> Response:
    """Return the document as JSON."""
    return Response(status, msgspec.json.encode(document))


def models(pod: Pod, _request: Request) -> Response:
    """GET /v1/models: every name of the base model, then the adapters."""
    return reply({"object": "list", "data": _models(pod)})


def model(pod: Pod, name: str) -> Response:
    """GET /v1/models/NAME: one of them."""
    for each in _models(pod):
        if each["id"] == name:
            return reply(each)
    raise Refusal(404, f"The model `{cut(name, most=200)}` does not exist.", param="model")


def past_response(pod: Pod, name: str) -> Response:
    """GET /v1/responses/ID: an answer that was given, as long as it is kept."""
    found = pod.answers.get(name.removeprefix("resp_"))
    if found is None:
        raise Refusal(404, f"Response with id '{cut(name, most=200)}' not found.", param="response_id")
    return Response(body=found)


def count_tokens(pod: Pod, request: Request) -> Response:
    """POST /v1/messages/count_tokens: how many tokens a message would have."""
    read = bodies.decode(request.body, bodies.CountTokens)
    resolve(pod, read.model)
    return reply({"input_tokens": from_messages(conversation(read)).count})


def _models(pod: Pod) -> list[dict[str, Any]]:
    settings = pod.settings
    shared = {"object": "model", "created": int(pod.wall()), "owned_by": "vllm"}
    window = {"max_model_len": settings.max_model_len}
    base = [{"id": n, **shared, "root": settings.model, "parent": None, **window} for n in settings.names]
    parent = settings.names[0]
    adapters = [{"id": n, **shared, "root": path, "parent": parent, **window} for n, path in pod.loras.items()]
    return base + adapters


def load_lora(pod: Pod, request: Request) -> Response:
    """POST /v1/load_lora_adapter: loading twice is loading once."""
    read = bodies.decode(request.body, bodies.LoraChange)
    if not read.lora_name:
        raise Refusal(400, "lora_name must not be empty", param="lora_name")
    pod.loras[read.lora_name] = read.lora_path or read.lora_name
    return Response()


def unload_lora(pod: Pod, request: Request) -> Response:
    """POST /v1/unload_lora_adapter: requests under way keep theirs."""
    pod.loras.pop(bodies.decode(request.body, bodies.LoraChange).lora_name, None)
    return Response()


def tokenize(pod: Pod, request: Request) -> Response:
    """POST /tokenize: a prompt or messages, not both."""
    read = bodies.decode(request.body, bodies.Tokenize)
    resolve(pod, read.model)
    if (read.prompt is None) == (read.messages is None):
        raise Refusal(400, "Give either prompt or messages")
    prompt = Prompt(read.prompt) if read.prompt is not None else from_messages(read.messages or ())
    strings = tokens.split(prompt.text) if read.return_token_strs else None
    body = {"max_model_len": pod.settings.max_model_len, "count": prompt.count, "tokens": prompt.ids}
    return reply({**body, "token_strs": strings})


def detokenize(pod: Pod, request: Request) -> Response:
    """POST /detokenize: ids are hashes, so a number stands for itself."""
    read = bodies.decode(request.body, bodies.Detokenize)
    resolve(pod, read.model)
    return reply({"prompt": "".join(map(tokens.speak, read.tokens))})


def render_chat(pod: Pod, request: Request) -> Response:
    """POST /v1/chat/completions/render: one object with the token ids."""
    read = bodies.decode(request.body, bodies.Chat)
    _base_only(pod, read.model)
    prompt = from_messages(read.messages)
    body: dict[str, Any] = {"token_ids": prompt.ids}
    if prompt.media:
        body["features"] = _features(prompt)
    return reply(body)


def render_completion(pod: Pod, request: Request) -> Response:
    """POST /v1/completions/render: one object per prompt."""
    read = bodies.decode(request.body, bodies.Completion)
    _base_only(pod, read.model)
    return reply([{"token_ids": prompt.ids} for prompt in from_field(read.prompt)])


def _base_only(pod: Pod, model: str | None) -> None:
    if resolve(pod, model)[1] is not None:
        raise Refusal(400, f"`{model}` is a LoRA adapter: render with the base model", param="model")


def _features(prompt: Prompt) -> dict[str, Any]:
    """Return where the media of a prompt stand, spread evenly over its tokens; their contents are their hashes."""
    total = prompt.count
    span = max(total // len(prompt.media), 1)
    kinds = {"img": "image", "audio": "audio", "video": "video"}
    hashes: dict[str, list[str]] = {}
    spots: dict[str, list[dict[str, int]]] = {}
    contents: dict[str, list[str]] = {}
    for index, name in enumerate(prompt.media):
        kind = kinds[name.split("_")[1]]
        offset = max(min(index * span, total - 1), 0)
        hashes.setdefault(kind, []).append(name)
        contents.setdefault(kind, []).append(base64.b64encode(name.encode()).decode())
        spots.setdefault(kind, []).append({"offset": offset, "length": max(min(span, total - offset), 1)})
    return {"mm_hashes": hashes, "mm_placeholders": spots, "kwargs_data": contents}


def embeddings(pod: Pod, request: Request) -> Response:
    """POST /v1/embeddings: numbers that depend on the tokens and nothing else."""
    read = bodies.decode(request.body, bodies.Embeddings)
    size = pod.settings.default_embedding_dimensions if read.dimensions is None else read.dimensions
    if not 1 <= size <= 65536:
        raise Refusal(400, "dimensions must be between 1 and 65536", param="dimensions")
    form = read.encoding_format or "float"
    if form not in {"float", "base64"}:
        raise Refusal(400, "encoding_format must be float or base64", param="encoding_format")
    prompts = from_field(read.input, name="input")
    if len(prompts) * size > _MOST_NUMBERS:
        raise Refusal(400, f"One request may ask for at most {_MOST_NUMBERS} numbers", param="dimensions")
    data = [
        {"object": "embedding", "index": i, "embedding": _packed(vector(p.ids, size), form=form)}
        for i, p in enumerate(prompts)
    ]
    count = sum(prompt.count for prompt in prompts)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return reply({"object": "list", "data": data, "model": read.model or pod.settings.names[0], "usage": usage})


def vector(ids: Sequence[int], size: int) -> list[float]:
    """Return the stand-in embedding: the tokens themselves first, then their shorter echo."""
    if not ids:
        return [0.0] * size
    length = len(ids)
    head = [2 * (number % 1024) / 1024 - 1 for number in ids[:size]]
    return head + [2 * (ids[i % length] % 256) / 256 - 1 for i in range(length, size)]


def _packed(values: list[float], *, form: str) -> Any:
    return values if form == "float" else base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def health(_pod: Pod, _request: Request) -> Response:
    """GET /health: the process is there."""
    return Response(body=b"{}")


def ready(pod: Pod, _request: Request) -> Response:
    """GET /health/ready: it may be sent requests."""
    if pod.stopping or pod.clock() - pod.started < pod.settings.startup_duration:
        raise Refusal(503, "The server is not ready yet")
    return Response(body=b"{}")


def metrics(pod: Pod, _request: Request) -> Response:
    """GET /metrics: what is true at this moment."""
    return Response(body=pod.page(), content_type=METRICS)


def sleep(pod: Pod, _request: Request) -> Response:
    """POST /sleep: forget the cache and serve nothing, where that is switched on; otherwise nothing happens."""
    if pod.settings.enable_sleep_mode and os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
        pod.sleeping = True
        pod.clear_cache()
    return Response()


def wake_up(pod: Pod, request: Request) -> Response:
    """POST /wake_up: serve again; with tags other than the cache's, only when that one is among them."""
    tags = parse_qs(request.query.decode("latin-1")).get("tags", [])
    if not tags or "kv_cache" in tags:
        pod.sleeping = False
    return Response()


def is_sleeping(pod: Pod, _request: Request) -> Response:
    """GET /is_sleeping."""
    return reply({"is_sleeping": pod.sleeping})


def reset_prefix_cache(pod: Pod, _request: Request) -> Response:
    """POST /reset_prefix_cache: forget all blocks that nobody uses."""
    pod.clear_cache()
    return Response()


def version(_pod: Pod, _request: Request) -> Response:
    """GET /version."""
    return reply({"version": VERSION})


def server_load(pod: Pod, _request: Request) -> Response:
    """GET /load: requests under way."""
    return reply({"server_load": len(pod.jobs)})


def query(pod: Pod, _request: Request) -> Response:
    """GET /query: Mooncake's bootstrap, one engine id per rank, stable while the process lives."""
    first = pod.port - max(pod.rank, 0)
    ranks = range(pod.settings.data_parallel_size)
    name = f"{pod.settings.seed}-{first}"
    return reply({str(r): {"engine_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name}-{r}"))} for r in ranks})

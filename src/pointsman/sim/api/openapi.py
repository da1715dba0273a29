"""The server's own OpenAPI document, made from the structures that read the bodies, so that the two cannot differ.

It describes what is accepted and that errors have vLLM's form; answers are left open where their shape depends on the
request. Served at /openapi.json, as vLLM does, and used by the fuzz tests.
"""

from functools import cache
from typing import Any

import msgspec

from pointsman.core.http import Request, Response
from pointsman.sim.pod.pod import Pod
from pointsman.sim.text import bodies

READS: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": bodies.Chat,
    "/v1/completions": bodies.Completion,
    "/v1/responses": bodies.Responses,
    "/v1/messages": bodies.Anthropic,
    "/inference/v1/generate": bodies.Generate,
    "/v1/embeddings": bodies.Embeddings,
    "/v1/load_lora_adapter": bodies.LoraChange,
    "/v1/unload_lora_adapter": bodies.LoraChange,
    "/v1/chat/completions/render": bodies.Chat,
    "/v1/completions/render": bodies.Completion,
    "/v1/messages/count_tokens": bodies.CountTokens,
    "/tokenize": bodies.Tokenize,
    "/detokenize": bodies.Detokenize,
}
ASKED = ("/v1/models", "/health", "/ping", "/version", "/load", "/metrics", "/is_sleeping", "/query", "/admin/config")
_ERROR = {"$ref": "#/components/schemas/Error"}
_ERRORS = {
    str(status): {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in (
        (400, "bad request"),
        (404, "no such model"),
        (413, "too large"),
        (429, "queue full"),
        (503, "not serving"),
    )
}
_ERROR_BODY = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "integer"},
            },
        }
    },
}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    kinds = list(dict.fromkeys(READS.values()))
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {path: {"post": _operation(by_kind[kind])} for path, kind in READS.items()}
    for path in ASKED:
        paths[path] = {"get": {"responses": {"200": {"description": "the answer"}}}}
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "Pointsman's simulated vLLM", "version": "1"},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR_BODY}},
    }
    return msgspec.json.encode(whole)


def _operation(schema: dict[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "responses": {"200": {"description": "the answer"}, **_ERRORS}}


def show(_pod: Pod, _request: Request) -> Response:
    """GET /openapi.json."""
    return Response(body=document())

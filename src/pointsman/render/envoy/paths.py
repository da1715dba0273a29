"""What clients may ask a gateway for: the inference API, and nothing else that a model server happens to serve.

A model server serves its own administration on the same port (`/admin/config`, `/sleep`, adapters), and pages about
itself (`/metrics`, `/version`) that say nothing when whoever was picked answers. Those are for its own address.
`/health` is of the second kind and yet here, because benchmarks ask for it before they begin.
"""

from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

INFERENCE = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/conversations",
    "/v1/embeddings",
    "/v1/images/generations",
    "/v1/models",
    "/inference/v1/generate",
    "/generate",
    "/tokenize",
    "/detokenize",
    "/health",
)
# In the shape in which OpenAI's clients look for a message.
_BODY = (
    '{"error": {"message": "The gateway serves the inference API only, and not this path", '
    '"type": "NotFoundError", "param": null, "code": 404}}'
)


def allowed(route: Document, *, paths: Sequence[str], prefix: str = "") -> list[Document]:
    """Return the route once for each of these paths, which has all below it too, and once more under a prefix."""
    # One regular expression for all would be larger than Envoy takes.
    plain = [{"match": None, **route} | {"match": _below(path)} for path in paths]
    if not prefix:
        return plain
    return [*plain, *(_rewritten(route, path, prefix=prefix) for path in paths)]


def _rewritten(route: Document, path: str, *, prefix: str) -> Document:
    action = route["route"] | {"prefix_rewrite": path}
    return {"match": None, **route} | {"match": _below(f"{prefix}{path}"), "route": action}


def _below(path: str) -> Document:
    return {"path_separated_prefix": path.rstrip("/")} if path.rstrip("/") else {"prefix": "/"}


def refusal() -> Document:
    """Return the route that answers 404 to what no route before it took."""
    kind = {"header": {"key": "content-type", "value": "application/json"}}
    return {
        "match": {"prefix": "/"},
        "direct_response": {"status": 404, "body": {"inline_string": _BODY}},
        "response_headers_to_add": [kind | {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
    }

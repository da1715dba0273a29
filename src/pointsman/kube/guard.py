"""Who may read a metrics port on a cluster: whoever the API server knows and lets `get` the path.

The reader's bearer token is what asks: a SelfSubjectAccessReview for the path, sent with that token. One call says both
whether the token is good and whether its user may, as TokenReview and SubjectAccessReview say in two; and it is the
reader's own right to ask for itself, which every user has, so that we need no right at all. Whoever takes over a picker
gets nothing by which tokens could be tried.

The client must have no credentials of its own (`connect(anonymous=True)`): with a client certificate on the
connection, the API server would answer for that, whatever the token.

Anyone can send tokens, so all is bounded: an answer is kept for a minute under the token's digest, at most
`_MOST_KEPT` of them, the oldest goes first; and at most `_MOST_ASKED` questions are on their way, the next reader is
told to come again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from pointsman.core.http import Request, Response
from pointsman.kube.client import Client, connect
from pointsman.kube.errors import ApiError, Unreachable

_KEEP_SECONDS = 60.0
_MOST_KEPT = 256
_MOST_ASKED = 8
_PATIENCE_SECONDS = 5.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TEXT = b"text/plain; charset=utf-8"
_REFUSALS = {
    401: b"this needs the bearer token of an account that the cluster knows\n",
    403: b"the token's user may not get this path: grant it by a ClusterRole with nonResourceURLs\n",
    503: b"the API server cannot be asked about the token now: try again\n",
}


async def connect_guarded(
    stack: AsyncExitStack, *, guarded: bool, clock: Callable[[], float]
) -> "tuple[Client, Guard | None]":
    """Return the client of the cluster that we run on and who guards a metrics port there; both end with the stack."""
    client = await stack.enter_async_context(connect())
    if not guarded:
        return client, None
    return client, Guard(await stack.enter_async_context(connect(anonymous=True)), clock=clock)


class Guard:
    """Asks the API server about readers."""

    def __init__(self, client: Client, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[bytes, str], tuple[float, int]] = {}
        self._asked = 0

    async def answer(
        self, request: Request, route: Callable[[], Response | Awaitable[Response | None] | None]
    ) -> Response | None:
        """Return what the route says to a reader who may hear it, and a refusal to others; None streams."""
        kind, _, token = request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        status = await self.check(token.strip() if kind.lower() == "bearer" else "", path=request.path)
        if status != 200:
            return Response(status, _REFUSALS[status], _TEXT)
        answer = route()
        return answer if answer is None or isinstance(answer, Response) else await answer

    async def check(self, token: str, *, path: str) -> int:
        """Return the status to answer with: 200 lets the reader in."""
        if not token or not token.isascii() or not token.isprintable():
            return 401
        reader = hashlib.sha256(token.encode()).digest(), path
        until, status = self._known.get(reader, (0.0, 0))
        if self._clock() < until:
            return status
        if self._asked >= _MOST_ASKED:
            return 503
        self._asked += 1
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                status = await self._ask(token, path=path)
        except (ApiError, Unreachable, TimeoutError):
            return 503  # who cannot be asked about is not let in, and may try again
        finally:
            self._asked -= 1
        self._known.pop(reader, None)
        if len(self._known) >= _MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[reader] = self._clock() + _KEEP_SECONDS, status
        return status

    async def _ask(self, token: str, *, path: str) -> int:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": {"path": path, "verb": "get"}},
        }
        try:
            answer = msgspec.json.decode(await self._client.request("POST", _REVIEWS, body=body, bearer=token))
        except ApiError as error:
            if error.code in {401, 403}:
                return error.code
            raise
        return 200 if answer.get("status", {}).get("allowed") else 403

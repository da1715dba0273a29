"""Who may read the metrics port on a cluster: whoever the API server knows and lets `get` the path.

As the Go picker does: the bearer token is shown to the API server (TokenReview), and the user that it belongs to is
asked about (SubjectAccessReview for the path). An answer is kept for a minute, so that a scraper costs two calls per
minute; what is kept is bounded, because anyone can send tokens.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, Unreachable

_KEEP_SECONDS = 60.0
_MOST_KEPT = 256
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Guard:
    """Asks the API server about readers."""

    def __init__(self, client: Client, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    async def check(self, token: str, *, path: str) -> int:
        """Return the status to answer with: 200 lets the reader in."""
        if not token:
            return 401
        known = self._known.get((token, path))
        if known is not None and self._clock() < known[0]:
            return known[1]
        try:
            status = await self._ask(token, path=path)
        except (ApiError, Unreachable):
            return 503  # who cannot be asked about is not let in, and may try again
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[token, path] = self._clock() + _KEEP_SECONDS, status
        return status

    async def _ask(self, token: str, *, path: str) -> int:
        review = await self._review(_TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        if not review.get("authenticated"):
            return 401
        user = review.get("user", {})
        asked = {
            "user": user.get("username", ""),
            "groups": user.get("groups", []),
            "uid": user.get("uid", ""),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = await self._review(_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", asked)
        return 200 if access.get("allowed") else 403

    async def _review(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": version, "kind": kind, "spec": spec}
        answer = msgspec.json.decode(await self._client.request("POST", path, body=body))
        status: dict[str, Any] = answer.get("status", {})
        return status

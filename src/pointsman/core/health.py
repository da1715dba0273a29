"""Pages such as `/healthz`, `/readyz` and `/metrics`, for probes and Prometheus.

What they say comes from functions, so it knows neither caches nor controllers. A route that raises
is a 500 with the error in it: a broken probe must not look like a healthy one. With a guard every route is for readers
whom it lets in; probes have no token, so they are served elsewhere.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from pointsman.core.http import Request, Response, Server

PLAIN = b"text/plain; charset=utf-8"
Routes = Mapping[str, Callable[[], Response]]


class Guard(Protocol):
    """Who lets readers in."""

    async def answer(self, request: Request, say: Callable[[], Response], /) -> Response | None:
        """Return what the page says, or why this reader is not told."""


def text(status: int, body: str) -> Response:
    """Return a plain-text answer."""
    return Response(status, body.encode(), PLAIN)


def readiness(missing: Iterable[object]) -> Response:
    """Return that a process is ready, or a line for each thing that it lacks."""
    lines = [f"{one}\n" for one in missing]
    return text(503, "".join(lines)) if lines else text(200, "ok\n")


def answer(request: Request, routes: Routes, *, guard: Guard | None = None) -> Response | Awaitable[Response | None]:
    """Return what a route says; a path that is none lists those that are."""
    route = routes.get(request.path)
    if route is None:
        return text(404, f"there is {', '.join(sorted(routes))}\n")
    if request.method not in {"GET", "HEAD"}:
        return text(405, "only GET\n")
    return _said(route) if guard is None else guard.answer(request, partial(_said, route))


def _said(route: Callable[[], Response]) -> Response:
    try:
        return route()
    except Exception as error:
        return text(500, f"{error!r}\n")


@asynccontextmanager
async def serve(
    routes: Routes, *, host: str, port: int, flag: str = "--port", guard: Guard | None = None
) -> AsyncIterator[int]:
    """Serve the routes while the block runs; yields the port. Raises PortTaken, which names the flag."""
    async with Server() as server:
        listener = await server.listen(
            lambda request: answer(request, routes, guard=guard), host=host, port=port, flag=flag
        )
        yield listener.port

"""`/healthz`, `/readyz` and `/metrics`, for kubelet's probes and Prometheus.

Owns three routes; what they say comes from functions, so it knows neither caches nor controllers. A route that raises
is a 500 with the error in it: a broken probe must not look like a healthy one.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from pointsman.core.http import Request, Response, Server

PLAIN = b"text/plain; charset=utf-8"
Routes = Mapping[str, Callable[[], Response]]


def text(status: int, body: str) -> Response:
    """Return a plain-text answer."""
    return Response(status, body.encode(), PLAIN)


def answer(request: Request, routes: Routes) -> Response:
    """Return what a route says; a path that is none lists those that are."""
    route = routes.get(request.path)
    if route is None:
        return text(404, f"there is {', '.join(sorted(routes))}\n")
    if request.method not in {"GET", "HEAD"}:
        return text(405, "only GET\n")
    try:
        return route()
    except Exception as error:
        return text(500, f"{error!r}\n")


@asynccontextmanager
async def serve(routes: Routes, *, host: str, port: int, flag: str = "--port") -> AsyncIterator[int]:
    """Serve the routes while the block runs; yields the port. Raises PortTaken, which names the flag."""
    async with Server() as server:
        listener = await server.listen(lambda request: answer(request, routes), host=host, port=port, flag=flag)
        yield listener.port

"""`/healthz`, `/readyz` and `/metrics` over plain HTTP/1.1, for kubelet's probes and Prometheus.

Owns a listening socket and three answers. It reads one request line per connection and closes; what it serves
comes from functions, so it knows neither caches nor controllers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Answer = tuple[int, str, bytes]
Routes = dict[str, Callable[[], Answer]]
_PHRASES = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def text(code: int, body: str) -> Answer:
    """Return a plain-text answer."""
    return code, "text/plain; charset=utf-8", body.encode()


@asynccontextmanager
async def serve(routes: Routes, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve the routes while the block runs; yields the port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_respond(head, routes))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, host, port)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _respond(head: bytes, routes: Routes) -> bytes:
    method, target, *_ = (*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", "")
    route = routes.get(target.partition("?")[0])
    if method not in {"GET", "HEAD"}:
        answer = text(405, "only GET\n")
    elif route is None:
        answer = text(404, f"there is {', '.join(sorted(routes))}\n")
    else:
        answer = _guarded(route)
    code, media, body = answer
    lines = (
        f"HTTP/1.1 {code} {_PHRASES[code]}",
        f"content-type: {media}",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if method == "HEAD" else body)


def _guarded(route: Callable[[], Answer]) -> Answer:
    try:
        return route()
    except Exception as error:
        return text(500, f"{error!r}\n")

"""The baselines of `bench sim`: servers that read the body and decide nothing.

`uvicorn` is a bare ASGI app: streams send as many events as the body's `max_tokens`, 20 ms apart, each from its own
task; other requests get a fixed answer of the simulator's size. `httptools` is less still: the parser, one callback,
and that answer, which is about what HTTP costs in Python.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httptools
import uvicorn
import uvloop

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
HEAD = {"id": "chatcmpl-x", "created": 1, "model": "m", "object": "chat.completion.chunk", "usage": None}
EVENT = b"data: %b\n\n" % json.dumps({**HEAD, "choices": [{"index": 0, "delta": {"content": "word "}}]}).encode()
WHOLE = json.dumps({**HEAD, "choices": [{"index": 0, "message": {"content": "word " * 16}}]}).encode()
GAP = 0.02


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    asked = json.loads(body or b"{}")
    kind = b"text/event-stream" if asked.get("stream") else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if asked.get("stream"):
        for _ in range(asked["max_tokens"]):
            await asyncio.sleep(GAP)
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})
    else:
        await send({"type": "http.response.body", "body": WHOLE})


class Echo(asyncio.Protocol):
    """One connection that gives every request the same answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser: Any = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE))


async def echo(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "httptools":
        uvloop.run(echo(int(sys.argv[2])))
    else:
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", access_log=False)

"""One request to a part of the stack: health, metrics, Envoy's admin. A new connection each, because we ask rarely.

`get` never raises for a peer that is away, slow or wrong: it answers None, which for every caller means "not yet".
"""

import asyncio
import contextlib
from dataclasses import dataclass

import httptools

from pointsman.render.envoy.addresses import Address


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes


class _Collector:
    """What httptools calls while it parses."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def get(address: Address, path: str, *, timeout: float = 2.0) -> Answer | None:
    """Return the answer, or None when there was none in time."""
    return await ask("GET", address, path, timeout=timeout)


async def ask(method: str, address: Address, path: str, *, timeout: float = 2.0) -> Answer | None:
    """Return the answer to a request without a body, or None when there was none in time."""
    try:
        async with asyncio.timeout(timeout):
            return await _exchange(method, address, path)
    except (OSError, TimeoutError, httptools.HttpParserError):
        return None


async def _exchange(method: str, address: Address, path: str) -> Answer | None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        head = f"{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        writer.write(head.encode())
        collector = _Collector()
        parser = httptools.HttpResponseParser(collector)
        while not collector.complete and (data := await reader.read(65536)):
            parser.feed_data(data)
        return Answer(parser.get_status_code(), bytes(collector.body)) if collector.complete else None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

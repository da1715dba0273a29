"""Bytes on a connection to the gateway, as no HTTP client would send them."""

import asyncio
from dataclasses import dataclass

from tests.envoy.harness import PATIENCE, Lab


@dataclass
class Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, lab: Lab) -> "Line":
        return cls(*await asyncio.open_connection(lab.gateway.host, lab.gateway.port))

    async def rest(self, *, timeout: float = PATIENCE) -> bytes:
        """Return what comes until the gateway closes; raises TimeoutError when it does not."""
        async with asyncio.timeout(timeout):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def head(self) -> str:
        """Return an answer's status and headers; nothing when the gateway closes without one."""
        async with asyncio.timeout(PATIENCE):
            try:
                return (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return ""

    async def drip(self, piece: bytes, *, every: float) -> None:
        """Send a piece over and over, until the gateway has enough of it."""
        while not self.writer.is_closing() and not self.reader.at_eof():
            self.writer.write(piece)
            await asyncio.sleep(every)

    def close(self) -> None:
        self.writer.transport.abort()


def status(answer: str | bytes) -> int:
    """Return an answer's status; 0 when there is none."""
    words = (answer if isinstance(answer, str) else answer.decode("latin-1")).split(" ", 2)
    return int(words[1]) if len(words) > 1 else 0


async def exchange(lab: Lab, data: bytes) -> str:
    """Send bytes on a connection of their own and return the head of the answer."""
    line = await Line.open(lab)
    line.writer.write(data)
    try:
        return await line.head()
    finally:
        line.close()

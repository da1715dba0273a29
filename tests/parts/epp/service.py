"""An HTTP service on loopback with every bad habit that one beside a picker can have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

HABITS = {
    "hang": "timeout",
    "dribble": "timeout",
    "500": "refused",
    "nonsense": "unreadable",
    "hang up": "unreachable",
    "not HTTP": "unreachable",
    "oversize": "unreachable",
}
"""Each with what it counts as."""


class Service:
    """Answers questions with a body as it is told to, or with a habit."""

    def __init__(self, answer: Callable[[bytes], bytes], *, status: str = "200 OK") -> None:
        self.answer = answer
        self._status = status
        self.habit = ""
        self.connections = 0
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        self.heard = asyncio.Event()  # when one that hangs up heard something
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(size))
                if self.habit == "hang up":
                    self.heard.set()
                    break
                await self._reply(writer, self.bodies[-1])
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the last one ends the test
        finally:
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, question: bytes) -> None:
        if self.habit == "hang":
            await asyncio.Event().wait()
        if self.habit == "dribble":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            await asyncio.Event().wait()
        if self.habit == "oversize":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            for _ in range(1000):
                writer.write(b" " * 1_000_000)
                await writer.drain()
        status = "500 Oops" if self.habit == "500" else self._status
        body = b"<html>" if self.habit == "nonsense" else self.answer(question)
        if self.habit == "not HTTP":
            writer.write(b"220 mail.example ESMTP\r\n")
        else:
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body))
        await writer.drain()


@asynccontextmanager
async def serving(answer: Callable[[bytes], bytes], *, status: str = "200 OK") -> AsyncIterator[Service]:
    """Run a service, and end what still hangs in it."""
    service = Service(answer, status=status)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await service.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        for task in tasks:
            task.cancel()
        server.close()

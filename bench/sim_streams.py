"""The client of `bench sim` for streams: many connections, one stream each, and the time between events.

Reads bytes and counts events, so that it costs little: it shares the machine with what it measures.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop


class Stream(asyncio.Protocol):
    """One connection: a stream after the other until the time is up."""

    first: list[float] = []  # noqa: RUF012 - one process, one measurement
    gaps: list[float] = []  # noqa: RUF012 - as above
    events = 0
    request = b""
    until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.ask()

    def ask(self) -> None:
        self.began, self.last = time.perf_counter(), 0.0
        if self.began < Stream.until:
            self.transport.write(Stream.request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        count = data.count(b"data: {")
        if self.last:
            Stream.gaps.extend([(now - self.last) / max(count, 1)] * count)
        elif count:
            Stream.first.append(now - self.began)
        Stream.events += count
        if count:
            self.last = now
        if b"[DONE]" in data:
            self.ask()


async def main(port: int, streams: int, seconds: float, tokens: int) -> None:
    body = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    Stream.request = head.encode() + body
    Stream.until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    for _ in range(streams):
        await loop.create_connection(Stream, "127.0.0.1", port)
    await asyncio.sleep(seconds)
    gaps = sorted(Stream.gaps)
    shown = {
        "events": Stream.events,
        "mean": sum(gaps) / len(gaps) * 1e3,
        "p99": gaps[len(gaps) * 99 // 100] * 1e3,
        "first": sum(Stream.first) / len(Stream.first) * 1e3,
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))

"""The client of `bench sim` for streams: many connections, one stream each, and the time between events.

It shares the machine with what it measures, so it does as little as it can: one epoll, no event loop, no parsing. So
that its own lateness is not taken for the server's, every time is taken twice: when the bytes *arrived* (the kernel's
stamp; on the loopback device that is when the server wrote them) and when we came to *read* them.
"""

import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

STAMP = getattr(socket, "SO_TIMESTAMPNS", 35)  # asm-generic's number, for Pythons that do not know the name
_TIMESPEC = struct.Struct("@ll")


@dataclass
class Clock:
    """The times between events as one clock saw them."""

    gaps: list[float] = field(default_factory=list)

    def shown(self) -> dict[str, float]:
        """Return mean and high percentiles in milliseconds."""
        gaps = sorted(self.gaps)
        high = {name: gaps[int(len(gaps) * share)] * 1e3 for name, share in (("p99", 0.99), ("p999", 0.999))}
        return {"mean": sum(gaps) / len(gaps) * 1e3, **high}


@dataclass(slots=True)
class Stream:
    """One connection: a stream after the other."""

    sock: socket.socket
    began: float = 0.0
    arrived: float = 0.0
    read: float = 0.0


def connect(port: int) -> Stream:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.SOL_SOCKET, STAMP, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return Stream(sock)


class Load:
    """All streams, and what they saw."""

    def __init__(self, port: int, *, streams: int, request: bytes) -> None:
        self.request = request
        self.arrived, self.read = Clock(), Clock()
        self.first: list[float] = []
        self.events = 0
        self.poll = select.epoll()
        self.streams = {stream.sock.fileno(): stream for stream in (connect(port) for _ in range(streams))}
        for number in self.streams:
            self.poll.register(number, select.EPOLLIN)

    def run(self, seconds: float) -> None:
        until = time.time() + seconds
        for stream in self.streams.values():
            self.ask(stream)
        while time.time() < until:
            for number, _ in self.poll.poll(0.1, 4096):
                self.receive(self.streams[number])

    def ask(self, stream: Stream) -> None:
        stream.began, stream.arrived = time.time(), 0.0
        stream.sock.send(self.request)

    def receive(self, stream: Stream) -> None:
        data, stamps, _, _ = stream.sock.recvmsg(65536, 64)
        if not data:
            raise SystemExit("the server closed a stream")
        count = data.count(b"data: {")
        if count:
            now = time.time()
            seconds, nanos = _TIMESPEC.unpack_from(stamps[0][2])
            self.note(stream, count=count, arrived=seconds + nanos * 1e-9, read=now)
        if data.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
            self.ask(stream)

    def note(self, stream: Stream, *, count: int, arrived: float, read: float) -> None:
        self.events += count
        if not stream.arrived:
            self.first.append(arrived - stream.began)
        elif count == 1:
            self.arrived.gaps.append(arrived - stream.arrived)
            self.read.gaps.append(read - stream.read)
        else:
            self.arrived.gaps += [(arrived - stream.arrived) / count] * count
            self.read.gaps += [(read - stream.read) / count] * count
        stream.arrived, stream.read = arrived, read


def main(port: int, streams: int, seconds: float, tokens: int) -> None:
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
    load = Load(port, streams=streams, request=head.encode() + body)
    load.run(seconds)
    shown = {
        "events": load.events,
        "first": sum(load.first) / len(load.first) * 1e3,
        "cpu": time.process_time() / load.events * 1e6,
        "arrived": load.arrived.shown(),
        "read": load.read.shown(),
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))

"""What one request costs the picker without sockets: the bytes of an Envoy in, the picker's bytes out.

The whole path of `bench picker` but for the event loop and the scrapes: HTTP/2 frames, gRPC, ext_proc messages, body,
prompt, decision, reservation, the response and its usage. It repeats well where other work wants the same cores, and it
is what to run under a profiler. The messages are built with the official protobuf classes; sixteen requests are on
their way at once, since one read of a busy connection carries frames of many. Figures are CPU time of a process; each
is the least of the rounds. `--python` compares interpreters or commits, which take turns.

    python -m bench exchange [--sizes 1024 16384 225280] [--endpoints 8 100] [--profile default] [--rounds 5]
                             [--python NAME=COMMAND ...] [--calls]

`--calls` shows where the time of the first size goes, by function, under cProfile.
"""

import argparse
import cProfile
import gc
import json
import pstats
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hpack import Encoder

from bench.decide import make_director
from bench.picker import ANSWER, PROFILES
from pointsman.core.budget import Budget
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.stream import Exchange
from pointsman.epp.prediction.questions import Predictor
from pointsman.wire.connection import Connection
from pointsman.wire.frames import ACK, END_HEADERS, END_STREAM, PREFACE, FrameKind, Setting, frame, settings
from pointsman.wire.grpc import Push, Router
from pointsman.wire.limits import Limits

_PATH = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_OPEN = [
    (":method", "POST"), (":scheme", "http"), (":path", _PATH), (":authority", "pickers"),
    ("te", "trailers"), ("grpc-timeout", "10000m"), ("content-type", "application/grpc"),
    ("x-envoy-internal", "true"), ("x-forwarded-for", "127.0.0.1"),
]  # fmt: skip
_AT_ONCE = 16
_DUPLEX = 4


def _headers(**fields: str) -> pb.HttpHeaders:
    rows = [base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in fields.items()]
    return pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=rows))


def _asked(number: int, *, size: int) -> list[bytes]:
    """Return the messages of a request."""
    fields = {
        ":authority": "127.0.0.1:8080", ":path": "/v1/completions", ":method": "POST", ":scheme": "http",
        "content-type": "application/json", "content-length": str(size), "x-forwarded-proto": "http",
        "x-request-id": f"{number:08x}-7d0f-4c2e-9d5a-0d1b0c6a2f11",
    }  # fmt: skip
    headers = pb.ProcessingRequest(request_headers=_headers(**fields))
    headers.protocol_config.request_body_mode = _DUPLEX
    headers.protocol_config.response_body_mode = _DUPLEX
    empty = json.dumps({"model": "bench", "max_tokens": 1, "prompt": f"{number:016x} "})
    filler = "The points are set before the train arrives. " * (size // 45 + 1)
    body = empty[:-2] + filler[: size - len(empty)] + empty[-2:]
    return [
        headers.SerializeToString(),
        pb.ProcessingRequest(request_body=pb.HttpBody(body=body.encode(), end_of_stream=True)).SerializeToString(),
    ]


def _answered() -> list[bytes]:
    """Return the messages of a response."""
    fields = {
        ":status": "200", "content-length": str(len(ANSWER)), "content-type": "text/plain", "server": "envoy",
        "x-envoy-upstream-service-time": "1", "date": "Mon, 16 Nov 2026 07:00:00 GMT",
    }  # fmt: skip
    headers = pb.ProcessingRequest(response_headers=_headers(**fields))
    said = headers.metadata_context.filter_metadata["envoy.lb"]
    said.update({"x-gateway-destination-endpoint-served": "10.0.0.1:8000"})
    body = pb.ProcessingRequest(response_body=pb.HttpBody(body=ANSWER.encode(), end_of_stream=True))
    return [headers.SerializeToString(), body.SerializeToString()]


def _data(stream: int, message: bytes) -> bytes:
    """Return a message in DATA frames of the size that Envoy writes."""
    whole = b"\0" + len(message).to_bytes(4, "big") + message
    parts = [whole[at : at + 16384] for at in range(0, len(whole), 16384)]
    return b"".join(frame(FrameKind.DATA, 0, stream, part) for part in parts)


class Envoy:
    """The other side of one connection: what it sends, built before it is needed."""

    def __init__(self, router: Router) -> None:
        limits = Limits(message_bytes=64 << 20)
        self._connection = Connection(accept=router.accept, limits=limits, clock=time.monotonic, budget=Budget())
        encoder = Encoder()
        encoder.header_table_size = 0
        self._first = encoder.encode(_OPEN)
        self._block = encoder.encode(_OPEN)
        self._stream = -1
        self._answer = _answered()
        wide = settings({Setting.INITIAL_WINDOW_SIZE: 256 << 20, Setting.MAX_FRAME_SIZE: 16384})
        self._connection.receive(PREFACE + wide + frame(FrameKind.SETTINGS, ACK, 0))
        self._connection.receive(frame(FrameKind.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))

    def batch(self, numbers: range, *, size: int) -> list[bytes]:
        """Return the reads of requests that are on their way together."""
        streams = [self._next() for _ in numbers]
        asked = [_asked(number, size=size) for number in numbers]
        opened = b"".join(self._opening(stream, said[0]) for stream, said in zip(streams, asked, strict=True))
        bodies = [_data(stream, said[1]) for stream, said in zip(streams, asked, strict=True)]
        answers = (b"".join(_data(stream, message) for stream in streams) for message in self._answer)
        ends = b"".join(frame(FrameKind.DATA, END_STREAM, stream) for stream in streams)
        window = frame(FrameKind.WINDOW_UPDATE, 0, 0, (size * len(streams) + 100_000).to_bytes(4, "big"))
        return [opened, *(bodies if size > 16384 else [b"".join(bodies)]), *answers, ends, window]

    def _opening(self, stream: int, message: bytes) -> bytes:
        block, self._first = self._first or self._block, b""
        return frame(FrameKind.HEADERS, END_HEADERS, stream, block) + _data(stream, message)

    def _next(self) -> int:
        self._stream += 2
        return self._stream

    def send(self, reads: list[bytes]) -> int:
        """Send them; return how much came back."""
        connection, size = self._connection, 0
        for read in reads:
            size += len(connection.receive(read))
            while connection.backlog:
                size += len(connection.proceed())
        if connection.closing:
            raise SystemExit("bench: the picker closed the connection")
        return size

    def settle(self) -> None:
        """Acknowledge that there is no HPACK table any more."""
        self._connection.receive(frame(FrameKind.SETTINGS, ACK, 0))


def picker(endpoints: int, *, profile: str) -> Envoy:
    """Return the other side of a picker with so many endpoints."""
    rng = random.Random(1)
    director = make_director(endpoints, rng=rng, config=PROFILES[profile])
    budget, deadlines = Budget(), Deadlines(seconds=60.0, clock=time.monotonic)
    predictor = Predictor(clock=time.monotonic, rng=rng)

    def ask(*_: object) -> Callable[[], None]:
        return lambda: None

    def open_(push: Push) -> Exchange:
        return Exchange(
            push,
            director=director,
            ask=ask,
            predictor=predictor,
            fresh_id=str,
            max_body=64 << 20,
            budget=budget,
            deadlines=deadlines,
        )

    return Envoy(Router({_PATH: open_}, limits=Limits(message_bytes=64 << 20)))


def measure(envoy: Envoy, *, size: int, first: int, work: Callable[[Callable[[], None]], float]) -> float:
    """Return the microseconds of one request."""
    count = max(64, min(1024, (8 << 20) // size)) // _AT_ONCE * _AT_ONCE
    starts = range(first, first + count, _AT_ONCE)
    batches = [envoy.batch(range(start, start + _AT_ONCE), size=size) for start in starts]

    def all_of_them() -> None:
        for reads in batches:
            envoy.send(reads)

    return work(all_of_them) / count * 1e6


def timed(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def one(args: argparse.Namespace) -> Iterator[tuple[int, int, float]]:
    """Yield endpoints, size and µs, measured in this process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as `core.loop` sets it
    for endpoints in args.endpoints:
        envoy = picker(endpoints, profile=args.profile)
        measure(envoy, size=1024, first=0, work=timed)
        envoy.settle()
        for size in args.sizes:
            runs = [measure(envoy, size=size, first=(each + 1) << 20, work=timed) for each in range(4)]
            yield endpoints, size, min(runs[1:])


def show_calls(args: argparse.Namespace) -> None:
    envoy, profiler = picker(args.endpoints[0], profile=args.profile), cProfile.Profile()
    for each in range(3):
        measure(envoy, size=args.sizes[0], first=each << 20, work=timed)
        envoy.settle()

    def profiled(work: Callable[[], None]) -> float:
        profiler.runcall(work)
        return 0.0

    measure(envoy, size=args.sizes[0], first=1 << 30, work=profiled)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, nargs="+", default=[8, 100])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 16384, 225280])
    parser.add_argument("--profile", choices=PROFILES, default="default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", nargs="+", default=[f"this={sys.executable}"], help="interpreters, as NAME=COMMAND")
    parser.add_argument("--calls", action="store_true", help="show where the time goes, by function")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(list(one(args))))
    elif args.calls:
        show_calls(args)
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    """Let the interpreters take turns, and print the least of each."""
    best: dict[tuple[int, int, str], float] = {}
    what = ["--endpoints", *map(str, args.endpoints), "--sizes", *map(str, args.sizes), "--profile", args.profile]
    for _ in range(args.rounds):
        for given in args.python:
            name, _, command = given.rpartition("=")
            run = [command, "-m", "bench", "exchange", "--one", *what]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"bench: {' '.join(run)} failed:\n{done.stderr[-2000:]}")
            for endpoints, size, micros in json.loads(done.stdout):
                key = endpoints, size, name
                best[key] = min(micros, best.get(key, micros))
    names = [given.rpartition("=")[0] for given in args.python]
    print(f"| endpoints | body | {' | '.join(f'{name}, µs' for name in names)} |")
    print(f"|--:|--:|{'--:|' * len(names)}")
    for endpoints in args.endpoints:
        for size in args.sizes:
            cells = " | ".join(f"{best[endpoints, size, name]:.0f}" for name in names)
            print(f"| {endpoints} | {size} | {cells} |")


if __name__ == "__main__":
    main()

"""Clients that hang up by the thousand: Envoy has one connection to the picker for them and for everybody else."""

import asyncio
import contextlib
import json
import time

import httpx
from hpack import Encoder
from tests.bystander import completions, watched
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import completion

from pointsman.local.http import get
from pointsman.wire.frames import END_HEADERS, PREFACE, Code, FrameKind, frame, reset, settings

ABORTS = 6000
SLOW = 10
AT_ONCE = 25  # of each of two clients, ten times a second
AFTERWARDS = 5  # lines of its answer that a stream still gets once the attack is over
PER_CONNECTION = 200  # Envoy hangs up on a client that has given up on 500 requests early


def begin(stream: int, *, block: bytes) -> bytes:
    """Return most of a request, as HTTP/2."""
    body = json.dumps(completion(tokens=20)).encode()
    return frame(FrameKind.HEADERS, END_HEADERS, stream, block) + frame(FrameKind.DATA, 0, stream, body)


async def hang_up(lab: Lab, *, times: int) -> None:
    """Begin requests, and give up on them before they are complete, again and again."""
    path = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/completions"), (":authority", "x")]
    encoder = Encoder()
    encoder.header_table_size = 0
    block = encoder.encode([*path, ("content-type", "application/json")])
    for _ in range(times // PER_CONNECTION):
        _, writer = await asyncio.open_connection(lab.gateway.host, lab.gateway.port)
        writer.write(PREFACE + settings({}))
        for first in range(0, PER_CONNECTION, AT_ONCE):
            numbers = range(2 * first + 1, 2 * (first + AT_ONCE) + 1, 2)
            writer.write(b"".join(begin(n, block=block) for n in numbers))
            await asyncio.sleep(0.1)
            writer.write(b"".join(reset(n, Code.CANCEL) for n in numbers))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


async def stream(http: httpx.AsyncClient, over: asyncio.Event) -> str:
    """Read an answer that lasts longer than the attack, however slow the machine; return what ended it before."""
    body = completion(tokens=100_000, stream=True) | {"ignore_eos": True}
    left = AFTERWARDS
    try:
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                return f"status {answer.status_code}"
            async for line in answer.aiter_lines():
                left -= bool(line) and over.is_set()
                if not left:
                    return ""
    except httpx.HTTPError as error:
        return repr(error)
    return "the answer ended"


async def connections_to_the_picker(lab: Lab) -> str:
    """Return what Envoy knows of connections that ended, and why: the first thing to look at when streams were cut."""
    page = await get(lab.admin, "/stats?usedonly&filter=cluster.pickers.*(cx_destroy|cx_total|keepalive|flood|goaway)")
    return page.body.decode() if page is not None else "Envoy does not answer"


async def test_ten_slow_streams_beside_thousands_of_aborts(start_lab: StartLab) -> None:
    slow = ("--max-model-len", "10000000", "--max-num-seqs", "4096", "--inter-token-latency", "100ms")
    lab = await start_lab(failure_mode="FailClose", simulator=slow)
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=SLOW)
    async with (
        httpx.AsyncClient(base_url=lab.url, timeout=120, limits=limits) as http,
        completions(lab.url, model=MODEL) as send,
        asyncio.TaskGroup() as slow_ones,
    ):
        streams = [slow_ones.create_task(stream(http, over)) for _ in range(SLOW)]
        try:
            async with watched(send):
                started = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    for _ in range(2):
                        group.create_task(hang_up(lab, times=ABORTS // 2))
                print(f"{ABORTS / (time.monotonic() - started):.0f} aborts a second")
        finally:  # whatever the bystander saw, say what became of the streams
            over.set()
            await asyncio.wait(streams)
            cut = [task.result() for task in streams if not task.cancelled() and task.result()]
            print(f"{len(cut)} of {SLOW} streams were cut: {cut[:3]}")
            print(await connections_to_the_picker(lab))
    assert not cut
    page = await get(lab.picker_metrics[0], "/metrics")
    assert page is not None
    assert b"pointsman_wire_limits_total{" not in page.body, "no limit of the connection was hit"

"""The simulator beside a bare uvicorn handler, in one run: CPU per request and per token, pacing, memory, virtual time.

    python -m bench sim [--seconds 6] [--streams 1000] [--realtime]

Ratios are what counts: both servers run on the same machine within the same minute, each alone with its load. How well
a stream keeps its pace says little where others want the same cores: `--realtime` (root) puts servers and streams
before all else.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import wrk
from bench.parts import Part
from pointsman.local.ports import any_free, free_span
from pointsman.sim.engine.engine import EngineConfig, Work
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.engine.steps import StepEngine

_SCRIPT = """
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.body = [==[%s]==]
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\\nRESULT {"requests": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""
FAST = ("--max-num-seqs", "256", "--max-model-len", "65536")
PACED = ("--max-num-seqs", "4000", "--time-to-first-token", "200ms", "--inter-token-latency", "20ms")


class Bench:
    """One run; parts start for one measurement and end with it."""

    def __init__(self, folder: Path, *, seconds: float, realtime: bool) -> None:
        self.folder = folder
        self.seconds = seconds
        self.first = ["chrt", "--fifo", "10"] if realtime else []

    def start(self, kind: str, flags: Sequence[str]) -> tuple[Part, int, float]:
        """Return a server that answers, its port, and how long that took."""
        port = free_span(23000, count=100) if "--pods" in flags else any_free()
        ours = [sys.executable, "-m", "pointsman", "sim", "--model", "m", "--host", "127.0.0.1", "--port", str(port)]
        baseline = [sys.executable, "-m", "bench.sim_baseline", kind, str(port)]
        command = [*ours, *flags] if kind == "pointsman" else baseline
        began = time.monotonic()
        part = Part([*self.first, *command], log=self.folder / f"{kind}.log")
        while True:
            part.check()
            try:
                socket.create_connection(("127.0.0.1", port + self.last(flags))).close()
            except OSError:
                time.sleep(0.005)
            else:
                return part, port, time.monotonic() - began

    def last(self, flags: Sequence[str]) -> int:
        """Return the number of the last pod, whose port is bound last."""
        return int(flags[flags.index("--pods") + 1]) - 1 if "--pods" in flags else 0

    def whole(self, kind: str, *, size: int) -> tuple[float, wrk.Load]:
        """Return the CPU microseconds per request that is not streamed."""
        part, port, _ = self.start(kind, FAST)
        message = {"role": "user", "content": ("The points are set before the train. " * (size // 36 + 1))[:size]}
        body = json.dumps({"model": "m", "messages": [message], "max_tokens": 16, "ignore_eos": True})
        script = self.folder / f"whole-{size}.lua"
        script.write_text(_SCRIPT % body)
        before = part.cpu()
        load = wrk.run(f"http://127.0.0.1:{port}", script=script, seconds=self.seconds, connections=64)
        used = part.cpu() - before
        part.end()
        return used / load.requests * 1e6, load

    def streams(self, kind: str, *, count: int) -> dict[str, Any]:
        """Return what many paced streams saw, and the server's CPU microseconds per token."""
        part, port, _ = self.start(kind, PACED)
        command = [sys.executable, "-m", "bench.sim_streams", str(port), str(count), f"{self.seconds + 2:g}", "400"]
        before = part.cpu()
        done = subprocess.run([*self.first, *command], stdout=subprocess.PIPE, text=True, check=True)
        used, held = part.cpu() - before, resident(part)
        part.end()
        seen: dict[str, Any] = json.loads(done.stdout)
        return {**seen, "cpu": used / seen["events"] * 1e6, "held": held}


def pacing(seen: dict[str, Any]) -> str:
    """Return one cell of the table: what arrived when, and what it cost."""
    arrived, read = seen["arrived"], seen["read"]
    return (
        f"mean {arrived['mean']:.2f}, p99 {arrived['p99']:.1f} ms (as read: {read['mean']:.2f}, {read['p99']:.1f}); "
        f"{seen['cpu']:.1f} µs CPU/token, {seen['held']:.0f} MB"
    )


def resident(part: Part) -> float:
    """Return its memory in MB."""
    return int(Path(f"/proc/{part.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def virtual(engines: int, *, requests: int = 150) -> float:
    """Return the simulated output tokens per second of CPU time, which is wall time on a machine that has it."""
    model = StepModel(weights=0.013, token=40e-6, decode_seq=11e-6, context_token=0.095e-6)
    fleet = [StepEngine(EngineConfig(max_num_seqs=128, blocks=30_000), latency=model) for _ in range(engines)]
    works = [Work(str(i), 300 + i % 700, 400) for i in range(requests * engines)]
    began, at, turn = time.process_time(), 0.0, 0
    for work in works:
        at += 0.05 / engines
        engine = fleet[turn := (turn + 1) % engines]
        engine.advance(at)
        engine.submit(work, now=at)
    for engine in fleet:
        while (wake := engine.next_wake) is not None:
            engine.advance(wake + 10.0)
    return len(works) * 400 / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--streams", type=int, nargs="*", default=[1000, 2000])
    parser.add_argument("--realtime", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), seconds=chosen.seconds, realtime=chosen.realtime)
        print("| test | pointsman sim | bare uvicorn | ratio |\n|---|---|---|---|")
        for size in (20, 16384):
            ours, load = bench.whole("pointsman", size=size)
            theirs, least = bench.whole("uvicorn", size=size)[0], bench.whole("httptools", size=size)[0]
            shown = f"{ours:.0f} µs CPU/request, p99 {load.p99:.1f} ms, {load.errors} errors"
            beside = f"{theirs:.0f} µs (httptools alone: {least:.0f} µs)"
            print(f"| not streamed, {size} B prompt | {shown} | {beside} | {ours / theirs:.2f} |")
        for count in chosen.streams:
            mine, other = bench.streams("pointsman", count=count), bench.streams("uvicorn", count=count)
            print(f"| {count} streams, 20 ms | {pacing(mine)} | {pacing(other)} | {mine['cpu'] / other['cpu']:.2f} |")
        for pods in (1, 100):
            part, _, ready = bench.start("pointsman", ["--pods", str(pods)])
            print(f"| {pods} pods, idle | {resident(part):.0f} MB, ready in {ready:.2f} s | | |")
            part.end()
    one, many = virtual(8), virtual(64)
    print(f"| virtual time, 8 engines → 64 | {one / 1e6:.2f} → {many / 1e6:.2f} M tokens/s | | {many / one:.2f} |")


if __name__ == "__main__":
    main()

"""wrk as the load: a fixed number of connections, each with one request at a time, for some seconds."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local requests, at = {}, 0
function init()
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
  end
end
function request()
  at = at %% #requests + 1
  return requests[at]
end
%sfunction done(summary, latency)
  local e = summary.errors
  io.write(string.format('\\nRESULT {"requests": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""

# No two prompts are alike: each begins with a number of its own.
_DISTINCT = """
local number, run = 0, os.time()
function request()
  number = number + 1
  local body = bodies[1]:gsub("0000", string.format("%08x%08x", run, number), 1)
  return wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
end
"""

# Each connection rests between two requests, for another time each, so that they do not all come at once.
_DELAY = """
function delay() return math.random(0, %d) end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What wrk saw; latencies in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int


def require() -> None:
    """End with what to do when it is not there."""
    if shutil.which("wrk") is None:
        sys.exit("bench: wrk is not there: install Debian's package `wrk` (apt install wrk)")


def write_script(
    folder: Path, *, size: int, prompts: int = 32, distinct: bool = False, delay: int = 0, model_last: bool = False
) -> Path:
    """Write a wrk script that sends different prompts of this size in turn; never the same again when `distinct`.

    With a `delay` each connection waits that many milliseconds, on average, before it sends. The model stands before
    the prompt, or behind it with `model_last`.
    """
    bodies = folder / f"bodies-{size}{'-last' if model_last else ''}"
    filler = "The points are set before the train arrives. " * (size // 45 + 1)
    lines = []
    for number in range(prompts):
        empty = json.dumps({"model": "bench", "max_tokens": 1, "prompt": f"{'0000' if distinct else f'{number:04}'} "})
        line = empty[:-2] + filler[: size - len(empty)] + empty[-2:]
        front = '"model": "bench", '
        lines.append("{" + line[1:-1].replace(front, "", 1) + f", {front[:-2]}}}" if model_last else line)
    bodies.write_text("\n".join(lines))
    script = folder / f"post-{size}-{delay}{'-last' if model_last else ''}.lua"
    extra = (_DISTINCT if distinct else "") + (_DELAY % (2 * delay) if delay else "")
    script.write_text(_SCRIPT % (bodies, extra))
    return script


def run(url: str, *, script: Path, seconds: float, connections: int, first: Sequence[str] = ()) -> Load:
    command = [*first, "wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "10s", "-s", str(script), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return Load(**json.loads(line.removeprefix("RESULT ")))

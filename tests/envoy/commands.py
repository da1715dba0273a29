"""The commands `up`, `status` and `down` as a person types them, and what `status` tells."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.envoy.harness import MODEL

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PORTS = ("--port", "--admin-port", "--sim-port", "--grpc-port", "--grpc-health-port", "--metrics-port")
UP = ("up", "--detach", "--model", MODEL, *(f"{flag}=0" for flag in PORTS))


def status(run: Run) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run("status", "--json").stdout)
    return document


def pids(document: dict[str, Any]) -> set[int]:
    return {document["pid"], *document["pids"].values(), *(e["pid"] for e in document["endpoints"])}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

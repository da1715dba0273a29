"""A real simulator in its own process, as a user starts it, on a port of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO

import httpx
from tests.ports import fresh_port


class Simulator:
    """The process and its address."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None, log: IO[str] | None = None) -> None:
        self.port = fresh_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "pointsman", "sim", "--host", "127.0.0.1", "--port", str(self.port)]
        flags = flags if "--model" in flags else ("--model", "test-model", *flags)
        self.process = subprocess.Popen(
            [*command, *flags], env={**os.environ, **(env or {})}, stdout=log, stderr=subprocess.PIPE, text=True
        )

    def wait_ready(self, *, scheme: str = "http") -> "Simulator":
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        for _ in range(400):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", verify=False).status_code == 200:
                    return self
            if self.process.poll() is not None:
                raise AssertionError(self.process.stderr.read() if self.process.stderr else "")
            time.sleep(0.025)
        raise AssertionError("the simulator did not become ready")

    def metric(self, name: str) -> float:
        """The sum of all series of that name."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0] == name)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(10)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            if self.process.stderr:
                self.process.stderr.close()


Start = Callable[..., Simulator]

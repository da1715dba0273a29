"""A real `pointsman epp` process for tests that speak to it over sockets, and official clients for it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tests.ports import fresh_port

# Decides on the headers alone: these tests are about the wire, and speak of no model.
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: active-request-scorer
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
"""
ENDPOINTS = "endpoints: [{name: a, address: 127.0.0.1, port: 8200}, {name: b, address: 127.0.0.1, port: 8201}]\n"


@dataclass(frozen=True)
class RunningPicker:
    process: subprocess.Popen[bytes]
    grpc_port: int
    health_port: int
    metrics_port: int
    tls: bool
    certificate: bytes

    def channel(self) -> grpc.aio.Channel:
        """Return an official client's channel."""
        target = f"localhost:{self.grpc_port}"
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if not self.tls:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(self.certificate), options=options)

    def get(self, path: str) -> Any:
        """Return the JSON at a path of the metrics port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=5) as answer:
            return json.load(answer)

    @property
    def inflight(self) -> int:
        return sum(endpoint["inflight"] for endpoint in self.get("/debug/endpoints")["endpoints"])


@contextlib.contextmanager
def running_picker(
    folder: Path,
    *flags: str,
    tls: bool = False,
    drain: str = "0s",
    config: str = CONFIG,
    endpoints: str = ENDPOINTS,
) -> Iterator[RunningPicker]:
    """Run a picker and stop it; its log is in the folder."""
    (folder / "endpoints.yaml").write_text(endpoints)
    (folder / "config.yaml").write_text(config)
    certificate = _write_certificate(folder) if tls else b""
    ports = (fresh_port(), fresh_port(), fresh_port())
    names = ("--grpc-port", "--grpc-health-port", "--metrics-port")
    command = [sys.executable, "-m", "pointsman", "epp", "--host", "127.0.0.1", f"--drain-timeout={drain}"]
    command += [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
    command += [f"--secure-serving={str(tls).lower()}", f"--endpoints-file={folder / 'endpoints.yaml'}", *flags]
    command += [f"--config-file={folder / 'config.yaml'}"] if config else []
    command += [f"--cert-path={folder}"] if tls else []
    with (folder / "epp.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            _wait_ready(process, port=ports[2], log=folder / "epp.log")
            yield RunningPicker(process, *ports, tls, certificate)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)


def _write_certificate(folder: Path) -> bytes:
    from pointsman.core.certificates import self_signed

    certificate, key = self_signed()
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    return certificate


def _wait_ready(process: subprocess.Popen[bytes], *, port: int, log: Path) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"the picker did not start:\n{log.read_text()}")

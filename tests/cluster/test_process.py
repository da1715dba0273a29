"""The example operator as a process of its own, as people start it: environment in, signals out."""

import asyncio
import signal
import sys
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.widgets import WIDGET, define, expect, source, widget

from pointsman.kube import Client, Key


async def test_it_starts_from_the_environment_and_ends_when_told(
    plane: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    await define(client)
    program = tmp_path / "widget_operator.py"
    program.write_text(source().replace("port=8080", "port=0"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        env={"KUBECONFIG": str(plane.kubeconfig("admin")), "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await client.create(WIDGET, widget(namespace, "w"))
        await expect(client, namespace, {"w-0": "hello"})
        await client.delete(WIDGET, Key(namespace, "w"))
        await expect(client, namespace, {})
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), 10)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, output.decode()
    assert b"told to end" in output

"""Installing the inference definitions, and finding that nothing is to be done: seconds, and requests per definition.

    python -m bench.crds [--rounds 5]

Beside it `kubectl apply --server-side` of the same files with `kubectl wait`, on the same API server. Needs the control
plane of tests/cluster.
"""

import argparse
import asyncio
import contextlib
import io
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.cluster.assets import find
from tests.cluster.controlplane import ControlPlane
from tests.cluster.definitions import ALL, Console

from pointsman.cli.crds import _converge
from pointsman.crds import Intent, our_definitions
from pointsman.kube import connect
from pointsman.operator.definitions import Definitions

FILES = Path(__file__).parents[1] / "config" / "crd" / "inference"


async def ours(plane: ControlPlane, allowed: set[str]) -> tuple[float, Counter[str]]:
    """Return how long a command of ours takes without the start of Python, and its requests by method."""
    counted: Counter[str] = Counter()
    async with connect(plane.kubeconfig("admin")) as client:
        work = Definitions(client.observed(lambda method, _: counted.update([method])))
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            code = await _converge(work, our_definitions(), Intent(), allowed)  # type: ignore[arg-type]
        assert code == 0
        return time.perf_counter() - began, counted


def theirs(plane: ControlPlane) -> float:
    """Return how long kubectl takes to apply the same files and to wait for them."""
    program, config = plane.assets.directory / "kubectl", plane.kubeconfig("admin")
    flags = ["--kubeconfig", str(config)]
    names = [f"crd/{name}" for name in ALL]
    began = time.perf_counter()
    for command in (
        ["apply", "--server-side", "-k", str(FILES)],
        ["wait", "--for=condition=Established", *names],
    ):
        subprocess.run([program, *flags, *command], check=True, capture_output=True)
    return time.perf_counter() - began


def measure(rounds: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane(find(), Path(directory))
        plane.start()
        console = Console(plane, plane.kubeconfig("admin"))
        try:
            for name, run in COMMANDS.items():
                times, requests = [], Counter[str]()
                for _ in range(rounds):
                    console.clear()
                    seconds, requests = asyncio.run(run(plane))
                    times.append(seconds)
                per = {method: round(number / len(ALL), 1) for method, number in sorted(requests.items())}
                print(f"{name:32} {statistics.median(times):6.2f} s  requests per definition {per or '–'}", flush=True)
        finally:
            plane.stop()


async def _install(plane: ControlPlane) -> tuple[float, Counter[str]]:
    return await ours(plane, {"create", "restore"})


async def _upgrade(plane: ControlPlane) -> tuple[float, Counter[str]]:
    await ours(plane, {"create", "restore"})
    return await ours(plane, {"create", "restore", "update"})


async def _kubectl(plane: ControlPlane) -> tuple[float, Counter[str]]:
    return await asyncio.to_thread(theirs, plane), Counter()


async def _kubectl_again(plane: ControlPlane) -> tuple[float, Counter[str]]:
    await asyncio.to_thread(theirs, plane)
    return await asyncio.to_thread(theirs, plane), Counter()


COMMANDS: dict[str, Callable[[ControlPlane], Coroutine[Any, Any, tuple[float, Counter[str]]]]] = {
    "install": _install,
    "upgrade, nothing to do": _upgrade,
    "kubectl apply and wait": _kubectl,
    "kubectl, nothing to do": _kubectl_again,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    measure(parser.parse_args().rounds)

"""`pointsman diff` and `render` against a real API server: nothing is written, and diff exits as kubectl's does."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.simulators import Site, defined, operator, sample

from pointsman.kube import Client
from pointsman.operator.kinds import CONFIG_MAP, DEPLOYMENT


@pytest.fixture(scope="module", autouse=True)
def definitions(plane: ControlPlane) -> Iterator[None]:
    with defined(plane, mesh=False):
        yield


class File:
    """A sample in the test's namespace, and how it differs."""

    def __init__(self, path: Path, *, site: Site, kubeconfig: str) -> None:
        self.path = path
        self._kubeconfig = kubeconfig
        self.document = yaml.safe_load(sample("full").read_text())
        self.document["metadata"]["namespace"] = site.namespace
        self.edit(lambda spec: None)

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        change(self.document["spec"])
        self.path.write_text(yaml.safe_dump(self.document))

    async def diff(self) -> tuple[int, str]:
        return await self.command("diff", "--kubeconfig", self._kubeconfig)

    async def command(self, name: str, *flags: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pointsman", name, "-f", str(self.path), *flags]
        run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120, check=False)
        return run.returncode, run.stdout or run.stderr


def heads(text: str) -> set[str]:
    return {line.removeprefix("diff ") for line in text.splitlines() if line.startswith("diff ")}


@pytest.fixture
async def site(plane: ControlPlane, client: Client, namespace: str) -> Site:
    return Site(plane, client, namespace)


@pytest.fixture
def file(plane: ControlPlane, site: Site, tmp_path: Path) -> File:
    return File(tmp_path / "stack.yaml", site=site, kubeconfig=str(plane.kubeconfig("admin")))


async def test_life_of_a_stack(plane: ControlPlane, site: Site, file: File) -> None:
    code, text = await file.diff()
    assert code == 1
    assert f"SimulatorDeployment/{site.namespace}/llm-sim-full" in heads(text)
    assert f"Deployment/{site.namespace}/gaie-sim-epp" in heads(text)
    assert not any(line.startswith("-") and not line.startswith("---") for line in text.splitlines())
    assert await site.made() == {}  # and nothing was written

    async with operator(plane.kubeconfig("admin")):
        await site.kubectl("apply", "-f", str(file.path))
        await site.ready("llm-sim-full")
        assert await file.diff() == (0, "")

        file.edit(
            lambda spec: (spec["decode"].update(replicas=5), spec["inferenceGateway"]["istio"].update(enabled=False))
        )
        code, text = await file.diff()
        assert code == 1
        stack = f"{site.namespace}/infra-sim-inference-gateway-istio"
        assert heads(text) == {
            f"SimulatorDeployment/{site.namespace}/llm-sim-full",
            f"Deployment/{site.namespace}/ms-sim-llm-d-modelservice-decode",
            *(f"{kind}/{stack}" for kind in ("ConfigMap", "Service", "Deployment")),
        }
        assert "-  replicas: 2\n+  replicas: 5\n" in text

        await site.kubectl("apply", "-f", str(file.path))
        await site.ready("llm-sim-full")
        assert await file.diff() == (0, "")
        await site.clear()
        await site.empties()


async def test_drift_is_a_difference(plane: ControlPlane, site: Site, file: File) -> None:
    async with operator(plane.kubeconfig("admin")):
        await site.kubectl("apply", "-f", str(file.path))
        await site.ready("llm-sim-full")
    await site.kubectl("scale", "deployment", "gaie-sim-epp", "--replicas=3")
    code, text = await file.diff()
    assert (code, heads(text)) == (1, {f"Deployment/{site.namespace}/gaie-sim-epp"})
    assert "-  replicas: 3\n+  replicas: 1\n" in text
    assert (await site.get(DEPLOYMENT, "gaie-sim-epp"))["spec"]["replicas"] == 3
    async with operator(plane.kubeconfig("admin")):
        await site.clear()
        await site.empties()


async def test_name_that_another_has_is_an_error(site: Site, file: File, client: Client) -> None:
    taken = {"metadata": {"name": "gaie-sim-epp", "namespace": site.namespace}, "data": {"mine": "yes"}}
    await client.create(CONFIG_MAP, taken)
    code, text = await file.diff()
    assert code == 2
    assert f"configmaps {site.namespace}/gaie-sim-epp exists and belongs to" in text


async def test_what_is_printed_can_be_applied(site: Site, file: File) -> None:
    code, text = await file.command("render")
    assert code == 0
    said = await site.kubectl("apply", "--dry-run=server", "-f", "-", text=text)
    assert said.count("created (server dry run)") == text.count("\nkind: ") == 19

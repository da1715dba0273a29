"""Where the next plan comes from."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.local.test_standard import settings

from pointsman.core.errors import UserError
from pointsman.local import follow
from pointsman.local.plan import StackPlan
from pointsman.local.state import Folder, WantedReplicas

HEAD = "apiVersion: sim.llm-d.io/v1alpha1\nkind: SimulatorDeployment\nmetadata: {name: x}\n"


async def test_wish_for_another_number(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    plans = follow.wishes(settings(replicas=2), folder=folder)
    first = await anext(plans)
    folder.write_wanted(WantedReplicas(replicas=5))
    async with asyncio.timeout(20):
        second = await anext(plans)
    counts = [[each.replicas for each in plan.of("simulator")] for plan in (first, second)]
    assert counts == [[2], [5]]
    assert [each.group for each in first.deployments] == [each.group for each in second.deployments]


async def test_edits_of_a_file(tmp_path: Path) -> None:
    path, said, told = tmp_path / "stack.yaml", list[str](), asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        told.set()

    path.write_text(HEAD + "spec: {replicas: 1}\n")
    plans = follow.edits(path, say=say)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        first = await anext(plans)
        path.write_text(HEAD + "spec: {replicas: -1}\n")
        following = group.create_task(_next(plans))
        await told.wait()
        path.write_text(HEAD + "spec: {replicas: 3, loadBalancing: {enabled: true}}\n")
    assert [plan.of("simulator")[0].replicas for plan in (first, following.result())] == [1, 3]
    refused, note, applying = said
    assert "spec.replicas: input should be greater than or equal to 0" in refused
    assert refused.endswith("(the stack stays as it is)")
    assert note == "note: no component can apply loadBalancing: install Istio, or enable inferenceGateway.standard"
    assert applying == f"applying {path}"


async def _next(plans: AsyncIterator[StackPlan]) -> StackPlan:
    return await anext(plans)


async def test_file_that_is_wrong_to_begin_with(tmp_path: Path) -> None:
    path = tmp_path / "stack.yaml"
    with pytest.raises(UserError, match=r"stack\.yaml: cannot be read"):
        await anext(follow.edits(path, say=print))
    path.write_text("kind: Pod")
    with pytest.raises(UserError, match=r"kind: input should be 'SimulatorDeployment'"):
        await anext(follow.edits(path, say=print))

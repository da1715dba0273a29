"""Where plans come from while a stack runs: what `pointsman up` asks of it, or the file that it is made from."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pointsman.api import LLMInferenceService, parse_any
from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.core.watch import watch_files
from pointsman.local import objects, standard
from pointsman.local.plan import StackPlan
from pointsman.local.standard import Settings
from pointsman.local.state import Folder
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import stack
from pointsman.render.serving.service import ServingCluster, llm_stack

_LOOK_EVERY = 0.2


async def wishes(settings: Settings, *, folder: Folder) -> AsyncIterator[StackPlan]:
    """Yield the plan of the flags, and again with each other number of simulators that someone asks for."""
    yield standard.plan(settings, folder=folder)
    while True:
        wanted = folder.wanted()
        if wanted is not None and wanted.replicas != settings.replicas:
            settings = dataclasses.replace(settings, replicas=wanted.replicas)
            yield standard.plan(settings, folder=folder)
        await asyncio.sleep(_LOOK_EVERY)


async def edits(path: Path, *, say: Callable[[str], None]) -> AsyncIterator[StackPlan]:
    """Yield the plan of a file, and again after each edit; one that is wrong changes nothing, and is told.

    Raises UserError when it is wrong to begin with.
    """
    last: StackPlan | None = None
    async for (content,) in watch_files([path]):
        try:
            plan = plan_of(content, name=str(path))
        except UserError as error:
            if last is None:
                raise
            say(f"{error} (the stack stays as it is)")
            continue
        for notice in plan.notices:
            if last is None or notice not in last.notices:
                say(f"note: {notice}")
        if last is not None and plan != last:
            say(f"applying {path}")
        if plan != last:
            yield plan
        last = plan


def plan_of(content: bytes | None, *, name: str) -> StackPlan:
    """Return the plan of a file with a SimulatorDeployment or an LLMInferenceService; raises UserError."""
    if content is None:
        raise UserError(f"{name}: cannot be read")
    document = parse_yaml(content, name=name)
    resource = parse_any(document, source=name)
    # This machine has no definitions of Istio or the Gateway API: what needs them is done without, or told.
    if isinstance(resource, LLMInferenceService):
        return objects.plan(llm_stack(resource, document, ServingCluster(facts=Facts(), simulate=True), configs={}))
    return objects.plan(stack(resource, Facts()))

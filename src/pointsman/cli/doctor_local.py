"""What the doctor asks of the stack that `pointsman up` runs on this machine.

Gathers what `doctor.checks` judges: the supervisor's record, Envoy's admin, the picker's pages, and two requests
through the gateway. A part that does not answer leaves a gap, never an error: that is what the checks are about.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pointsman.core.numbers import real
from pointsman.doctor import envoy, facts
from pointsman.doctor.gather import pages, requests
from pointsman.local import control
from pointsman.local.state import Folder, StackState
from pointsman.render.envoy.addresses import read_address

_PROMPT = "The doctor asks the same question twice, to see where it goes the second time. " * 8
_PATIENCE, _PAGE_SECONDS = 5.0, 2.0


async def gather(folder: Folder) -> facts.Stack:
    """Return what can be seen of the stack in a folder."""
    found = await asyncio.to_thread(control.find, folder)
    if found is None or found.stack is None:
        return facts.Stack(running=False)
    stack = found.stack
    async with asyncio.TaskGroup() as group:
        gateway = group.create_task(_gateway(stack.admin))
        pickers = [group.create_task(_picker(each["metrics"])) for each in stack.pickers.values()]
    probes = [await _probe(stack)]
    if probes[0].status == 200:  # else it would only be waited for once more
        probes.append(await _probe(stack))
    return facts.Stack(
        running=True,
        admin=stack.admin,
        metrics=stack.picker.get("metrics", ""),
        logs=stack.logs,
        gateway_log="envoy" if "envoy" in stack.pids else "*",  # Pods of a resource have names of their own
        picker_log="picker" if "picker" in stack.pids else "*",
        problems=stack.problems,
        servers=tuple(facts.Server(name=one.name, address=one.address, state=one.state) for one in stack.replicas),
        gateway=gateway.result(),
        picker=_together([each.result() for each in pickers]),
        probes=tuple(probes),
    )


async def _gateway(admin: str) -> facts.Gateway | None:
    dump, clusters = [await _json(admin, path) for path in ("/config_dump", "/clusters?format=json")]
    if dump is None or clusters is None:
        return None
    return facts.Gateway(filters=envoy.read_filters(dump), clusters=envoy.read_clusters(clusters))


async def _picker(metrics: str) -> facts.Picker | None:
    listed, health = await _json(metrics, "/debug/endpoints"), await _text(metrics, "/healthz")
    if listed is None or health is None:
        return None
    return facts.Picker(health=health, endpoints=tuple(map(_seen, listed.get("endpoints", ()))))


def _together(pickers: Sequence[facts.Picker | None]) -> facts.Picker | None:
    """Return the pickers of all pools as one: as well as the one that is worst, with the endpoints of all."""
    answering = [each for each in pickers if each is not None]
    if not answering or len(answering) < len(pickers):
        return None
    unwell = [each.health for each in answering if each.health != "ok"]
    known = tuple(seen for each in answering for seen in each.endpoints)
    return facts.Picker(health=unwell[0] if unwell else "ok", endpoints=known)


def _seen(row: dict[str, Any]) -> facts.Seen:
    age = real(str((row.get("scraped") or {}).get("age_seconds")))
    role = str((row.get("labels") or {}).get("llm-d.ai/role", ""))
    return facts.Seen(address=str(row.get("address")), age=age, standing=str(row.get("standing")), role=role)


async def _probe(stack: StackState) -> facts.Probe:
    """Send a request and ask the picker what it decided about it."""
    target = requests.Target(address=read_address(stack.gateway), model=stack.model, seconds=_PATIENCE)
    sent = await requests.send(target, _PROMPT)
    decided = await _json(stack.picker.get("metrics", ""), f"/debug/decisions?id={sent.request}")
    decisions = (decided or {}).get("decisions") or [{}]
    picked = (decisions[0].get("picked") or [""])[0]
    probe = sent.probe
    return facts.Probe(status=probe.status, answered=probe.answered, picked=str(picked), why=probe.why)


async def _text(base: str, path: str) -> str | None:
    answer = await pages.get(read_address(base), path, seconds=_PAGE_SECONDS) if base else None
    return answer.body.decode(errors="replace").strip() if answer is not None else None


async def _json(base: str, path: str) -> dict[str, Any] | None:
    found = await pages.get_json(read_address(base), path, seconds=_PAGE_SECONDS) if base else None
    return found if isinstance(found, dict) else None

"""`pointsman doctor`: look at a running stack from end to end, and name the first cause of trouble with its remedy.

Gathers what `doctor.checks` judges: the supervisor's record, Envoy's admin, the picker's pages, and two requests
through the gateway. A part that does not answer leaves a gap, never an error: that is what the checks are about.
"""

import asyncio
import http.client
import json
import os
import sys
import uuid
from typing import Annotated, Any

from cyclopts import Parameter

from pointsman.core.errors import UserError
from pointsman.core.numbers import real
from pointsman.doctor import checks, facts, report
from pointsman.local import control
from pointsman.local.http import get
from pointsman.local.observe import address
from pointsman.local.state import Folder, StackState, default_folder
from pointsman.render.envoy.addresses import Address

_PROMPT = "The doctor asks the same question twice, to see where it goes the second time. " * 8
_PATIENCE = 5.0


def doctor(
    *,
    local: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Find out what is wrong with the running stack: exit 0 all well, 1 something failed, 3 warnings alone.

    Parameters
    ----------
    local
        Look at the stack that `pointsman up` runs on this machine.
    as_json
        Print the findings as JSON.

    """
    if not local:
        raise UserError("say --local: the doctor looks at the stack of `pointsman up`, and not yet at a cluster")
    findings = checks.examine(asyncio.run(gather(Folder(default_folder(os.environ)))))
    if as_json:
        sys.stdout.write(json.dumps(report.document(findings), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(report.lines(findings)) + "\n")
    return report.exit_code(findings)


async def gather(folder: Folder) -> facts.Stack:
    """Return what can be seen of the stack in a folder."""
    found = await asyncio.to_thread(control.find, folder)
    if found is None or found.stack is None:
        return facts.Stack(running=False)
    stack = found.stack
    async with asyncio.TaskGroup() as group:
        gateway = group.create_task(_gateway(stack.admin))
        picker = group.create_task(_picker(stack.picker.get("metrics", "")))
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
        picker=picker.result(),
        probes=tuple(probes),
    )


async def _gateway(admin: str) -> facts.Gateway | None:
    dump, clusters = [await _json(admin, path) for path in ("/config_dump", "/clusters?format=json")]
    if dump is None or clusters is None:
        return None
    return facts.Gateway(filters=facts.read_filters(dump), clusters=facts.read_clusters(clusters))


async def _picker(metrics: str) -> facts.Picker | None:
    listed, health = await _json(metrics, "/debug/endpoints"), await _text(metrics, "/healthz")
    if listed is None or health is None:
        return None
    return facts.Picker(health=health, endpoints=tuple(map(_seen, listed.get("endpoints", ()))))


def _seen(row: dict[str, Any]) -> facts.Seen:
    age = real(str((row.get("scraped") or {}).get("age_seconds")))
    role = str((row.get("labels") or {}).get("llm-d.ai/role", ""))
    return facts.Seen(address=str(row.get("address")), age=age, standing=str(row.get("standing")), role=role)


async def _probe(stack: StackState) -> facts.Probe:
    """Send a request and ask the picker what it decided about it."""
    name = str(uuid.uuid4())
    probe = await asyncio.to_thread(_post, address(stack.gateway), name=name, model=stack.model)
    decided = await _json(stack.picker.get("metrics", ""), f"/debug/decisions?id={name}")
    decisions = (decided or {}).get("decisions") or [{}]
    picked = (decisions[0].get("picked") or [""])[0]
    return facts.Probe(status=probe.status, answered=probe.answered, picked=str(picked), why=probe.why)


def _post(gateway: Address, *, name: str, model: str) -> facts.Probe:
    connection = http.client.HTTPConnection(gateway.host, gateway.port, timeout=_PATIENCE)
    try:
        body = json.dumps({"model": model, "prompt": _PROMPT, "max_tokens": 1})
        headers = {"content-type": "application/json", "x-request-id": name}
        connection.request("POST", "/v1/completions", body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read(200).decode(errors="replace")
        why = "" if answer.status == 200 else f"status {answer.status}: {text}"
        return facts.Probe(status=answer.status, answered=answer.getheader("x-inference-pod") or "", why=why)
    except (OSError, http.client.HTTPException) as error:
        return facts.Probe(status=None, why=f"no answer: {error or type(error).__name__}")
    finally:
        connection.close()


async def _text(base: str, path: str) -> str | None:
    answer = await get(address(base), path) if base else None
    return answer.body.decode(errors="replace").strip() if answer is not None else None


async def _json(base: str, path: str) -> dict[str, Any] | None:
    text = await _text(base, path)
    try:
        found = json.loads(text) if text is not None else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

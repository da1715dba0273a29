"""How a Pod that leaves finishes what it has. It ends when nothing is left; how long to wait is for others to say."""

import asyncio
import re

from pointsman.local.http import ask, get
from pointsman.local.observe import gauge
from pointsman.local.replicas import PodMember
from pointsman.render.envoy.addresses import Address

_LOOK_AGAIN = 0.1
_CONNECTIONS = re.compile(rb"^http\.gateway\.downstream_cx_active: (\d+)$", re.MULTILINE)


async def drained(member: PodMember) -> None:
    """Wait until a Pod that nobody sends to any more has nothing left to do."""
    if member.role == "simulator":
        await _no_requests(member.address)
    elif member.role == "gateway":
        await _no_connections(member.admin)
    # A picker finishes its streams when it is asked to stop.


async def _no_requests(address: Address) -> None:
    while True:
        answer = await get(address, "/metrics")
        if answer is None or not (gauge(answer.body, "running") or gauge(answer.body, "waiting")):
            return
        await asyncio.sleep(_LOOK_AGAIN)


async def _no_connections(admin: Address) -> None:
    """Tell Envoy to end connections between two requests, and wait until they have ended."""
    await ask("POST", admin, "/drain_listeners?graceful&skip_exit")
    while True:
        answer = await get(admin, "/stats?filter=^http.gateway.downstream_cx_active$")
        found = _CONNECTIONS.search(answer.body) if answer is not None else None
        if found is None or found[1] == b"0":
            return
        await asyncio.sleep(_LOOK_AGAIN)

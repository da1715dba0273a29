"""What a running stack is doing now: the supervisor's record, the picker's counts and the simulators' gauges, joined.

Read-only, and patient: a part that does not answer leaves gaps, never an error.
"""

import asyncio
from collections.abc import Mapping
from typing import Literal

import msgspec

from pointsman.core.numbers import real
from pointsman.local.http import get
from pointsman.local.state import Replica, StackState
from pointsman.render.envoy.addresses import read_address

Gauge = Literal["running", "waiting"]


class ObservedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model server: as supervised, as loaded, as picked."""

    name: str
    address: str
    state: str
    pid: int | None
    running: int | None
    waiting: int | None
    inflight: int | None
    picks: int | None


class _Picked(msgspec.Struct):
    address: str
    inflight: int
    picks: int


class _PickerView(msgspec.Struct):
    endpoints: list[_Picked]


async def observe(stack: StackState) -> list[ObservedEndpoint]:
    """Return the endpoints with what is known of each."""
    async with asyncio.TaskGroup() as group:
        pickers = [group.create_task(_picks(each["metrics"])) for each in stack.pickers.values()]
        loads = [group.create_task(_load(replica)) for replica in stack.replicas]
    picked = {address: row for each in pickers for address, row in each.result().items()}
    return [_join(replica, task.result(), picked) for replica, task in zip(stack.replicas, loads, strict=True)]


def gauge(metrics: bytes, which: Gauge) -> int | None:
    """Return one of vLLM's gauges, over all its label sets; None when it is not there."""
    name = f"vllm:num_requests_{which}"
    lines = (
        line for line in metrics.decode(errors="replace").splitlines() if line.startswith((f"{name}{{", f"{name} "))
    )
    values = [value for line in lines if (value := real(line.rpartition(" ")[2])) is not None]
    return int(sum(values)) if values else None


async def _picks(metrics: str) -> Mapping[str, _Picked]:
    answer = await get(read_address(metrics), "/debug/endpoints")
    if answer is None or answer.status != 200:
        return {}
    try:
        view = msgspec.json.decode(answer.body, type=_PickerView)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {row.address: row for row in view.endpoints}


async def _load(replica: Replica) -> tuple[int | None, int | None]:
    answer = await get(read_address(replica.address), "/metrics")
    if answer is None or answer.status != 200:
        return None, None
    return gauge(answer.body, "running"), gauge(answer.body, "waiting")


def _join(replica: Replica, load: tuple[int | None, int | None], picked: Mapping[str, _Picked]) -> ObservedEndpoint:
    row = picked.get(replica.address)
    return ObservedEndpoint(
        name=replica.name,
        address=replica.address,
        state=replica.state,
        pid=replica.pid,
        running=load[0],
        waiting=load[1],
        inflight=row.inflight if row else None,
        picks=row.picks if row else None,
    )

"""The supervisor of one stack: it makes one plan after another true.

New Pods are started in the order in which they need each other (simulators, pickers, router, gateways); when all of
them serve, those leave that the plan no longer has, in the reverse order. So an edit costs no request, and one that
cannot come true takes nothing away. What the supervisor knows it writes to `stack.json` at every change, and tells who
asks (`control`): a disk that is full, or cannot be written for another reason, is told and tried again, and ends
nothing. It decides nothing about requests.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from pointsman.api.simulator import PICKER_PORTS
from pointsman.core.errors import Unavailable
from pointsman.local import control, programs
from pointsman.local.drain import drained
from pointsman.local.http import get
from pointsman.local.plan import Deployment, Ports, Role, StackPlan
from pointsman.local.pods import Pods
from pointsman.local.processes import Process, ProcessState, Program
from pointsman.local.publisher import Outlets, Publisher, hosts
from pointsman.local.relay import Relay
from pointsman.local.replicas import PodMember
from pointsman.local.running import START_TIMEOUT
from pointsman.local.state import Folder, Replica, StackState
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.clusters import PICKERS

DRAIN_TIMEOUT = 30.0
_PICKER_FORGETS_WITHIN = 0.5
_GATEWAY_ASKS_WITHIN = 5.0
_CHECK_EVERY = 1.0
_UPWARDS: tuple[Role, ...] = ("simulator", "picker", "router", "gateway")


class Supervisor:
    """Owns every process of the stack and the files between them."""

    def __init__(
        self,
        *,
        folder: Folder,
        envoy: Path,
        clock: Callable[[], float],
        say: Callable[[str], None],
        file: str = "",
        any_ports: bool = False,
    ) -> None:
        self._folder = folder
        self._envoy = envoy
        self._clock = clock
        self._say = _careful(say)
        self._file = file
        self._relay = Relay(folder, envoy=envoy, process=self._process, any_ports=any_ports)
        self._pods = Pods(process=self._make, taken=self._relay.ports)
        self._plan: StackPlan | None = None
        self._publisher = Publisher(members=self._pods.members, outlets=self._outlets)
        self._stop = asyncio.Event()
        self._ready = False
        self._failure: Unavailable | None = None
        self._unwritten = ""  # why the last record could not be
        self._told: set[str] = set()

    def stop(self) -> None:
        """End the stack; `run` returns when everything is gone."""
        self._stop.set()

    async def run(self, plans: AsyncIterator[StackPlan]) -> None:
        """Make each plan true as it comes, until `stop`.

        Raises Unavailable, with everything stopped again, when the first one does not come true.
        """
        async with control.answering(self._folder, self.stack), asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._publisher.run()), group.create_task(self._keep_record())]
            living = group.create_task(self._follow(plans, group=group))
            try:
                await self._stop.wait()
            finally:
                living.cancel()
                await self._end()
                for task in keeping:
                    task.cancel()
        if self._failure is not None:
            raise self._failure

    async def _follow(self, plans: AsyncIterator[StackPlan], *, group: asyncio.TaskGroup) -> None:
        async for plan in plans:
            try:
                await self._apply(plan, group=group)
            except Unavailable as failure:
                if not self._ready:
                    self._failure = failure
                    self._stop.set()
                    return
                self._say(str(failure))  # it is tried again with growing pauses; the others serve on
            self._write()

    # Making a plan true

    async def _apply(self, plan: StackPlan, *, group: asyncio.TaskGroup) -> None:
        before = len(self._pods.of("simulator"))
        self._plan = plan
        self._pods.have(plan.deployments)
        self._relay.settle(plan.services, taken=self._pods.ports())
        await self._publish()
        await self._start(group, self._relay.tell())
        for role in _UPWARDS:
            await self._grow(group, plan.of(role))
        await self._first_answer(plan)
        for role in reversed(_UPWARDS):
            await self._shrink(role, plan)
        self._tell(before=before)
        self._ready = True

    async def _grow(self, group: asyncio.TaskGroup, deployments: Sequence[Deployment]) -> None:
        await self._publish()  # what a new Pod reads must be there
        fleets = [self._pods.fleet(each) for each in deployments]
        started = [
            process for each, fleet in zip(deployments, fleets, strict=True) for process in fleet.grow(each.replicas)
        ]
        await self._start(group, started)
        for process in (process for fleet in fleets for process in fleet.processes()):
            await process.until_ready(timeout=START_TIMEOUT)  # also what an earlier plan started in vain
        await self._publish()
        for each in deployments:
            if each.role == "picker" and started:
                await self._asked(self._pods.fleet(each).members())

    async def _start(self, group: asyncio.TaskGroup, processes: Sequence[Process]) -> None:
        for process in processes:
            group.create_task(process.supervise())
        for process in processes:
            await process.until_ready(timeout=START_TIMEOUT)
            self._say(f"{process.program.name} is ready")

    async def _asked(self, pickers: Sequence[PodMember]) -> None:
        """Wait until the gateways that run already would ask these pickers."""
        wanted = {str(member.address) for member in pickers}
        deadline = self._clock() + _GATEWAY_ASKS_WITHIN
        for gateway in self._pods.of("gateway"):
            while self._clock() < deadline:
                answer = await get(gateway.admin, "/clusters")
                if answer is None or wanted <= hosts(answer.body.decode(), cluster=PICKERS, healthy=True):
                    break
                await asyncio.sleep(0.05)

    async def _shrink(self, role: Role, plan: StackPlan) -> None:
        wanted = {each.group: each.replicas for each in plan.deployments}
        fleets = self._pods.fleets(role)
        leaving = [member for f in fleets for member in f.leave(wanted.get(f.deployment.group, 0))]
        if leaving:
            await self._publish()
            await asyncio.sleep(_PICKER_FORGETS_WITHIN)
            async with asyncio.TaskGroup() as group:
                for member in leaving:
                    group.create_task(self._patiently(drained(member)))
        gone = [process for fleet in fleets for process in fleet.release()]
        self._pods.forget(wanted=wanted)
        try:
            await self._publish()
        finally:  # also when the stack ends meanwhile: nobody else knows of them now
            _ask_to_stop(gone)
        await _until_stopped(gone)

    async def _patiently(self, finished: Awaitable[None]) -> None:
        """Wait for it, but not for ever, and not when the stack ends."""
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(_until(finished)), group.create_task(_until(self._stop.wait()))]
            await asyncio.wait(waits, timeout=DRAIN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _publish(self) -> None:
        self._publisher.notice()
        await self._publisher.settled()

    async def _first_answer(self, plan: StackPlan) -> None:
        """Wait until one request went the whole way."""
        if self._ready or not any(each.replicas for each in plan.of("simulator")):
            return
        entry = self._entry(plan)
        deadline = self._clock() + START_TIMEOUT
        while self._clock() < deadline:
            answer = await get(entry, "/v1/models")
            if answer is not None and answer.status == 200:
                return
            await asyncio.sleep(0.05)
        said = "nothing" if answer is None else f"{answer.status} {answer.body[:200].decode(errors='replace')}"
        raise Unavailable(f"the stack at {entry} answers {said}: see the logs in {self._folder.logs}")

    def _entry(self, plan: StackPlan) -> Address:
        return plan.entry if isinstance(plan.entry, Address) else self._relay.address(*plan.entry)

    # Pods

    def _make(self, deployment: Deployment, names: Sequence[str], homes: Sequence[Ports]) -> Process:
        return self._process(
            programs.program(deployment, names=names, homes=homes, folder=self._folder, envoy=self._envoy)
        )

    def _process(self, program: Program) -> Process:
        log = self._folder.logs / f"{program.name}.log"
        return Process(program, log=log, changed=self._changed, clock=self._clock)

    def _outlets(self) -> Outlets:
        plan = self._plan
        if plan is None:
            return Outlets()
        pickers = [fleet.deployment for fleet in self._pods.fleets("picker")]
        gateways = [member for member in self._pods.of("gateway") if member.healthy]
        return Outlets(
            services=plan.services,
            backends={
                each: self._folder.endpoints_file(each.name)
                for each in (*self._relay.backends(), *self._pods.backends())
            },
            pickers={self._folder.picker_file(each.group): each.selects for each in pickers},
            pool=plan.pool_file,
            admin=gateways[0].admin if gateways else None,
        )

    # Ending

    async def _end(self) -> None:
        await _stop_all([*self._pods.processes("gateway"), *self._relay.processes])
        await _stop_all([*self._pods.processes("router"), *self._pods.processes("picker")])
        await _stop_all(self._pods.processes("simulator"))

    # Telling

    def _tell(self, *, before: int) -> None:
        after = len(self._pods.of("simulator"))
        if self._ready and before != after:
            self._say(f"scaled from {before} to {after} simulators")
        if self._ready and self._file:
            self._say(f"{self._file} is applied")

    def _changed(self, process: Process) -> None:
        back = process.state is ProcessState.READY and process.deaths
        if self._ready and (back or process.state in {ProcessState.RESTARTING, ProcessState.UNREADY}):
            self._say(f"{process.program.name} is {process.state}")
        self._publisher.notice()
        self._write()

    async def _keep_record(self) -> None:
        """Write the record again where it could not be written, or is no more what it was; tell what is wrong."""
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            if self._unwritten or self._folder.stack() != self.stack():
                self._write()
            problems = set(self._problems())
            for problem in sorted(problems - self._told):
                self._say(f"degraded: {problem}")
            if self._told and not problems:
                self._say("the state folder can be written again")
            self._told = problems

    def _problems(self) -> list[str]:
        record = [f"{self._folder.stack_file} cannot be written: {self._unwritten}"] if self._unwritten else []
        return [*record, *self._publisher.problems]

    def _write(self) -> None:
        stack = self.stack()
        if stack is None:
            return
        try:
            self._folder.write_stack(stack)
            self._unwritten = ""
        except OSError as error:
            self._unwritten = error.strerror or str(error)

    def stack(self) -> StackState | None:
        """Return what is; None before the first plan."""
        plan = self._plan
        if plan is None:
            return None
        gateways, fleets = self._pods.of("gateway"), self._pods.fleets("picker")
        pickers = {fleet.deployment.name: fleet.members()[-1] for fleet in fleets if len(fleet)}  # the newest of each
        asked = [*self._pods.of("picker"), *self._pods.of("router")]
        return StackState(
            pid=os.getpid(),
            ready=self._ready,
            gateway=f"http://{self._entry(plan)}",
            admin=f"http://{gateways[0].admin}" if gateways else "",
            model=plan.model,
            failure_mode=plan.failure_mode,
            models=plan.models,
            picker=_picker(next(iter(pickers.values()))) if pickers else {},
            pickers={each.name: _picker(each) for each in pickers.values()},
            pids={each.name: each.pid for each in (*asked, *gateways)} | self._relay.pids(),
            logs=str(self._folder.logs),
            replicas=tuple(_record(member) for member in self._pods.of("simulator")),
            services=self._relay.places(),
            file=self._file,
            problems=tuple(self._problems()),
        )


def _picker(member: PodMember) -> dict[str, str]:
    grpc, health, metrics = (member.ports[port] for port in PICKER_PORTS.values())
    return {"grpc": str(grpc), "health": str(health), "metrics": f"http://{metrics}"}


def _record(member: PodMember) -> Replica:
    state = "leaving" if member.leaving else member.state
    return Replica(name=member.name, address=str(member.address), state=state, pid=member.pid)


def _careful(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return what says the same, and goes on when there is no room for words."""

    def carefully(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)

    return carefully


async def _until(awaited: Awaitable[object]) -> None:
    await awaited


async def _stop_all(processes: Iterable[Process]) -> None:
    processes = list(processes)
    _ask_to_stop(processes)
    await _until_stopped(processes)


def _ask_to_stop(processes: Iterable[Process]) -> None:
    for process in processes:
        process.stop()


async def _until_stopped(processes: Iterable[Process]) -> None:
    for process in processes:
        await process.until_stopped()

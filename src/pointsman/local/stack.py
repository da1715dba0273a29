"""The supervisor of one stack: N simulators, a picker, Envoy.

It starts them in the order in which they need each other, follows `wanted.json` while it runs, and stops them in the
reverse order. What it knows it writes to `stack.json` at every change. It decides nothing about requests.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Sequence

from pointsman.core.errors import Unavailable
from pointsman.local import programs, replicas
from pointsman.local.http import get
from pointsman.local.observe import gauge
from pointsman.local.ports import free_span
from pointsman.local.processes import Process, Program, State
from pointsman.local.programs import Settings
from pointsman.local.publisher import Publisher
from pointsman.local.state import Folder, Replica, Stack, replace
from pointsman.render.addresses import Address
from pointsman.render.envoy import bootstrap

START_TIMEOUT = 30.0
DRAIN_TIMEOUT = 30.0
_PICKER_FORGETS_WITHIN = 0.5
_FOLLOW_EVERY = 0.2


class Supervisor:
    """Owns every process of the stack and the files between them."""

    def __init__(
        self, settings: Settings, *, folder: Folder, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._clock = clock
        self._say = say
        self._simulators: dict[str, tuple[Process, Address]] = {}
        self._spare: dict[str, tuple[Process, Address]] = {}
        self._leaving: set[str] = set()
        self._others: dict[str, Process] = {}
        self._publisher = Publisher(folder, members=self._members)
        self._stop = asyncio.Event()
        self._ready = False
        self._failure: Unavailable | None = None

    def stop(self) -> None:
        """End the stack; `run` returns when everything is gone."""
        self._stop.set()

    async def run(self) -> None:
        """Run the stack until `stop`.

        Raises Unavailable, with everything stopped again, when a part does not start.
        """
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(self._publisher.run())
            living = group.create_task(self._start_and_follow(group))
            try:
                await self._stop.wait()
            finally:
                living.cancel()
                await self._end()
                publishing.cancel()
        if self._failure is not None:
            raise self._failure

    async def _start_and_follow(self, group: asyncio.TaskGroup) -> None:
        try:
            await self._start(group)
        except Unavailable as failure:
            self._failure = failure
            self._stop.set()
        else:
            await self._follow(group)

    # Starting

    async def _start(self, group: asyncio.TaskGroup) -> None:
        settings, folder = self._settings, self._folder
        await self._grow(group, wanted=settings.replicas)
        await self._publisher.settled()
        await self._launch(group, programs.picker(settings, endpoints_file=folder.picker_endpoints_file))
        gateway = settings.to_gateway(endpoints_file=folder.envoy_endpoints_file)
        replace(folder.bootstrap_file, json.dumps(bootstrap(gateway), indent=1))
        await self._launch(group, programs.envoy(settings, bootstrap_file=folder.bootstrap_file))
        self._publisher.admin = settings.admin
        await self._first_answer()
        self._ready = True
        self._write()

    async def _launch(self, group: asyncio.TaskGroup, program: Program) -> None:
        process = self._others[program.name] = self._process(program)
        group.create_task(process.supervise())
        await process.until_ready(timeout=START_TIMEOUT)
        self._say(f"{program.name} is ready")

    async def _first_answer(self) -> None:
        """Wait until one request went the whole way: Envoy, picker, simulator."""
        deadline = self._clock() + START_TIMEOUT
        while self._clock() < deadline:
            answer = await get(self._settings.gateway, "/v1/models")
            if answer is not None and answer.status == 200:
                return
            await asyncio.sleep(0.05)
        said = "nothing" if answer is None else f"{answer.status} {answer.body[:200].decode(errors='replace')}"
        raise Unavailable(
            f"the gateway at {self._settings.gateway} answers {said}: see the logs in {self._folder.logs}"
        )

    def _process(self, program: Program) -> Process:
        log = self._folder.logs / f"{program.name}.log"
        return Process(program, log=log, changed=self._changed, clock=self._clock)

    # Running

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        while not self._stop.is_set():
            wanted = self._folder.wanted()
            if wanted is not None and wanted.replicas != len(self._simulators):
                await self._scale(group, wanted=wanted.replicas)
            await asyncio.sleep(_FOLLOW_EVERY)

    async def _scale(self, group: asyncio.TaskGroup, *, wanted: int) -> None:
        before = len(self._simulators)
        try:
            await self._grow(group, wanted=wanted)
        except Unavailable as failure:
            self._say(str(failure))  # it is tried again with growing pauses; the others serve on
        await self._shrink(wanted=wanted)
        await self._publisher.settled()
        self._say(f"scaled from {before} to {len(self._simulators)} simulators")
        self._write()

    async def _grow(self, group: asyncio.TaskGroup, *, wanted: int) -> None:
        names = replicas.next_names(self._simulators, wanted=wanted)
        new = [name for name in names if name not in self._spare]
        self._simulators |= {name: self._spare.pop(name) for name in names if name in self._spare}
        started = [self._add(share) for share in replicas.shares(new, wanted=wanted)]
        for process in started:
            group.create_task(process.supervise())
        self._publisher.notice()
        for process in started:
            await process.until_ready(timeout=START_TIMEOUT)
            self._say(f"{process.program.name} is ready")

    def _add(self, names: Sequence[str]) -> Process:
        used = {address.port for _, address in (*self._simulators.values(), *self._spare.values())}
        used.update(address.port for address in _addresses(self._settings))
        host = self._settings.gateway.host
        port = free_span(self._settings.first_simulator_port, count=len(names), host=host, given_out=used)
        program = programs.simulators(self._settings, names=names, first=Address(host, port))
        process = self._process(program)
        for number, name in enumerate(names):
            self._simulators[name] = (process, Address(host, port + number))
        return process

    async def _shrink(self, *, wanted: int) -> None:
        leaving = replicas.surplus(list(self._simulators), wanted=wanted)
        if not leaving:
            return
        self._leaving.update(leaving)
        self._publisher.notice()
        await self._publisher.settled()
        await asyncio.sleep(_PICKER_FORGETS_WITHIN)
        async with asyncio.TaskGroup() as group:
            for name in leaving:
                group.create_task(self._drained(self._simulators[name][1]))
        gone = self._release(leaving)
        self._leaving.difference_update(leaving)
        self._publisher.notice()
        try:
            await self._publisher.settled()
        finally:  # also when the stack ends meanwhile: nobody else knows of them now
            _ask_to_stop(gone)
        await _until_stopped(gone)

    def _release(self, leaving: Iterable[str]) -> set[Process]:
        """Return the processes that nobody needs any more; what leaves the others is spare."""
        self._spare |= {name: self._simulators.pop(name) for name in leaving}
        needed = {process for process, _ in self._simulators.values()}
        gone = {process for process, _ in self._spare.values()} - needed
        self._spare = {name: spare for name, spare in self._spare.items() if spare[0] in needed}
        return gone

    async def _drained(self, address: Address) -> None:
        deadline = self._clock() + DRAIN_TIMEOUT
        while self._clock() < deadline and not self._stop.is_set():
            answer = await get(address, "/metrics")
            if answer is None or not (gauge(answer.body, "running") or gauge(answer.body, "waiting")):
                return
            await asyncio.sleep(0.1)

    # Ending

    async def _end(self) -> None:
        for name in ("envoy", "picker"):
            if name in self._others:
                await _stop_all([self._others[name]])
        await _stop_all({process for process, _ in self._simulators.values()})

    # Telling

    def _changed(self, process: Process) -> None:
        back = process.state is State.READY and process.deaths
        if self._ready and (back or process.state in {State.RESTARTING, State.UNREADY}):
            self._say(f"{process.program.name} is {process.state}")
        self._publisher.notice()
        self._write()

    def _members(self) -> list[replicas.Member]:
        return [
            replicas.Member(
                name=name,
                address=address,
                healthy=process.state is State.READY,
                leaving=name in self._leaving,
            )
            for name, (process, address) in self._simulators.items()
        ]

    def _write(self) -> None:
        settings = self._settings
        self._folder.write_stack(
            Stack(
                pid=os.getpid(),
                ready=self._ready,
                gateway=f"http://{settings.gateway}",
                admin=f"http://{settings.admin}",
                model=settings.model,
                failure_mode=settings.failure_mode,
                picker={
                    "grpc": str(settings.picker_grpc),
                    "health": str(settings.picker_health),
                    "metrics": f"http://{settings.picker_metrics}",
                },
                pids={name: process.pid for name, process in self._others.items()},
                logs=str(self._folder.logs),
                replicas=tuple(self._replica(name) for name in self._simulators),
            )
        )

    def _replica(self, name: str) -> Replica:
        process, address = self._simulators[name]
        state = "leaving" if name in self._leaving else str(process.state)
        return Replica(name=name, address=str(address), state=state, pid=process.pid)


async def until_ready(folder: Folder) -> Stack:
    """Return the stack of the folder once one request went the whole way."""
    while True:
        stack = folder.stack()
        if stack is not None and stack.ready:
            return stack
        await asyncio.sleep(0.02)


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


def _addresses(settings: Settings) -> tuple[Address, ...]:
    return (
        settings.gateway,
        settings.admin,
        settings.picker_grpc,
        settings.picker_health,
        settings.picker_metrics,
    )

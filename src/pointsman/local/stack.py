"""The supervisor of one stack: N simulators, a picker, Envoy.

It starts them in the order in which they need each other, follows `wanted.json` while it runs, and stops them in the
reverse order. What it knows it writes to `stack.json` at every change. It decides nothing about requests.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable

from pointsman.core.errors import Unavailable
from pointsman.local import programs
from pointsman.local.fleet import Fleet
from pointsman.local.http import get
from pointsman.local.observe import gauge
from pointsman.local.processes import Process, Program, State
from pointsman.local.programs import Settings
from pointsman.local.publisher import Publisher
from pointsman.local.state import Folder, Stack, replace
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
        self._fleet = Fleet(settings, process=self._process)
        self._others: dict[str, Process] = {}
        self._publisher = Publisher(folder, members=self._fleet.members)
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
            if wanted is not None and wanted.replicas != len(self._fleet):
                await self._scale(group, wanted=wanted.replicas)
            await asyncio.sleep(_FOLLOW_EVERY)

    async def _scale(self, group: asyncio.TaskGroup, *, wanted: int) -> None:
        before = len(self._fleet)
        try:
            await self._grow(group, wanted=wanted)
        except Unavailable as failure:
            self._say(str(failure))  # it is tried again with growing pauses; the others serve on
        await self._shrink(wanted=wanted)
        await self._publisher.settled()
        self._say(f"scaled from {before} to {len(self._fleet)} simulators")
        self._write()

    async def _grow(self, group: asyncio.TaskGroup, *, wanted: int) -> None:
        started = self._fleet.grow(wanted)
        for process in started:
            group.create_task(process.supervise())
        self._publisher.notice()
        for process in started:
            await process.until_ready(timeout=START_TIMEOUT)
            self._say(f"{process.program.name} is ready")

    async def _shrink(self, *, wanted: int) -> None:
        leaving = self._fleet.leave(wanted)
        if not leaving:
            return
        self._publisher.notice()
        await self._publisher.settled()
        await asyncio.sleep(_PICKER_FORGETS_WITHIN)
        async with asyncio.TaskGroup() as group:
            for address in leaving:
                group.create_task(self._drained(address))
        gone = self._fleet.release()
        self._publisher.notice()
        try:
            await self._publisher.settled()
        finally:  # also when the stack ends meanwhile: nobody else knows of them now
            _ask_to_stop(gone)
        await _until_stopped(gone)

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
        await _stop_all(self._fleet.processes())

    # Telling

    def _changed(self, process: Process) -> None:
        back = process.state is State.READY and process.deaths
        if self._ready and (back or process.state in {State.RESTARTING, State.UNREADY}):
            self._say(f"{process.program.name} is {process.state}")
        self._publisher.notice()
        self._write()

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
                replicas=self._fleet.records(),
            )
        )


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

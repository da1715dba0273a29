"""`pointsman up`, `status` and `down`: the stack on this machine.

`up` on a stack that runs already changes what can be changed while it runs (the number of replicas) and refuses the
rest by name. `up -f FILE` runs what a SimulatorDeployment describes and follows the file. A detached stack is the same
command in a session of its own.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.live import Live

from pointsman.api import read
from pointsman.core.errors import PointsmanError, Unavailable, UserError
from pointsman.core.files import open_private
from pointsman.core.numbers import whole
from pointsman.local import control, envoy, follow, screen
from pointsman.local.observe import observe
from pointsman.local.ports import Wish, settle
from pointsman.local.programs import Settings, standard
from pointsman.local.stack import START_TIMEOUT, Supervisor, until_ready
from pointsman.local.state import MOST_REPLICAS, Folder, Stack, Wanted, default_folder
from pointsman.render.envoy.addresses import Address

HOST = "127.0.0.1"
DEFAULT_REPLICAS = 3
_STOP_TIMEOUT = 60.0
_KILL_TIMEOUT = 10.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that `pointsman up` can be told. None is a default that may give way to a taken port."""

    replicas: int | None = None
    "Simulators to run (3); on a running stack, scale to this many."
    port: int = 8080
    "Port of the gateway."
    admin_port: int = 19000
    "Port of Envoy's admin."
    config: Path | None = None
    "EndpointPickerConfig file for the picker."
    model: str = "meta-llama/Llama-3.1-8B-Instruct"
    "Name of the model that the simulators serve."
    fail_open: bool = False
    "When the picker is away, serve from any endpoint instead of answering 503."
    detach: bool = False
    "Return when the stack is ready; `pointsman down` stops it."
    grpc_port: int | None = None
    "Picker: port of ext_proc (9002)."
    grpc_health_port: int | None = None
    "Picker: port of gRPC health (9003)."
    metrics_port: int | None = None
    "Picker: port of /metrics and /debug (9090)."
    sim_port: int = 8200
    "First port of the simulators."
    sim_args: str = ""
    "More flags for every simulator, as one string."
    picker_args: str = ""
    "More flags for the picker, as one string, such as '--explain --record decisions.jsonl'."
    secure_serving: bool = True
    "TLS between Envoy and the picker."
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None
    "Run what the SimulatorDeployment in this file describes, and apply its edits."
    any_ports: bool = False
    "With -f: leave the ports of Services to the system instead of taking their own numbers where these are free."

    def check(self) -> None:
        """Refuse what cannot work before anything is started."""
        if self.replicas is not None and not 1 <= self.replicas <= MOST_REPLICAS:
            raise UserError(f"--replicas {self.replicas} is out of range: choose from 1 to {MOST_REPLICAS}")
        if self.config is not None and not self.config.is_file():
            raise UserError(f"--config {self.config} is not a file: name an EndpointPickerConfig file")
        self._check_file()

    def _check_file(self) -> None:
        if self.file is None:
            if self.any_ports:
                raise UserError("--any-ports is about Services, which come with -f: name a file, or use --port 0")
            return
        said = replace(self, file=None, any_ports=False, detach=False).arguments()
        other = next((flag for flag in said if flag not in Options().arguments()), None)
        if other is not None:
            raise UserError(f"{other.partition('=')[0]} cannot be combined with -f: say it in {self.file}")
        read(self.file)

    def arguments(self) -> list[str]:
        """Return the command line that says the same, without `--detach`."""
        pairs = {
            "--replicas": self.replicas,
            "--port": self.port,
            "--admin-port": self.admin_port,
            "--config": self.config and self.config.absolute(),
            "--model": self.model,
            "--grpc-port": self.grpc_port,
            "--grpc-health-port": self.grpc_health_port,
            "--metrics-port": self.metrics_port,
            "--sim-port": self.sim_port,
        }
        flags = [f"{flag}={value}" for flag, value in pairs.items() if value is not None]
        flags += [f"--sim-args={self.sim_args}"] if self.sim_args else []
        flags += [f"--picker-args={self.picker_args}"] if self.picker_args else []
        flags += [f"--file={self.file.absolute()}"] if self.file else []
        flags += ["--any-ports"] if self.any_ports else []
        flags += ["--fail-open"] if self.fail_open else []
        return flags if self.secure_serving else [*flags, "--no-secure-serving"]


def up(options: Options | None = None) -> int:
    """Run the stack on this machine: Envoy, a picker, and simulators behind it."""
    options = options or Options()
    options.check()
    os.umask(0o077)  # configurations, logs, and what the parts write: nobody else's business
    folder = Folder(default_folder(os.environ))
    console = _console()
    if folder.is_supervised():
        return asyncio.run(_adjust(options, folder=folder, console=console))
    program = envoy.find(os.environ, say=console.print)
    if options.detach:
        return asyncio.run(_detach(options, folder=folder, console=console))
    folder.acquire()
    try:
        asyncio.run(_foreground(options, program=program, folder=folder, console=console))
    finally:
        folder.retire()
    return 0


def status(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Show the running stack and its endpoints; exit 1 when none runs."""
    folder = Folder(default_folder(os.environ))
    found = control.find(folder)
    stack = found.stack if found is not None else None
    console = _console()
    if stack is None:
        said = "no stack runs: `pointsman up` starts one"
        if found is not None or folder.is_supervised():
            said = f"a stack runs in {folder.path}, but does not say what it is: it may be starting or ending"
        console.print('{"running": false, "endpoints": []}' if as_json else said)
        return 1
    endpoints = asyncio.run(observe(stack))
    if as_json:
        document = {"running": True, **msgspec.to_builtins(stack), "endpoints": msgspec.to_builtins(endpoints)}
        del document["replicas"]
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif console.is_terminal:
        console.print(screen.table(stack, endpoints, caption="\n".join(screen.problems(stack)) or None))
    else:
        console.print("\n".join(screen.lines(stack, endpoints)))
    return 0


def down() -> int:
    """Stop the running stack and wait until everything of it is gone."""
    folder = Folder(default_folder(os.environ))
    console = _console()
    if not folder.is_supervised():
        console.print("no stack runs")
        return 0
    # Its children die with it, so the last resort leaves nothing behind either.
    for number, patience in ((signal.SIGTERM, _STOP_TIMEOUT), (signal.SIGKILL, _KILL_TIMEOUT)):
        if _ended(folder, number, patience=patience):
            console.print("the stack is stopped")
            return 0
    raise Unavailable(f"the stack in {folder.path} does not stop: end the process that holds {folder.path / 'lock'}")


def _ended(folder: Folder, number: signal.Signals, *, patience: float) -> bool:
    """Send the supervisor a signal as soon as it can be found; say whether it ended in time."""
    deadline = time.monotonic() + patience
    asked = False
    while folder.is_supervised():
        if time.monotonic() > deadline:
            return False
        found = None if asked else control.find(folder)
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, number)
            asked = True
        time.sleep(0.05)
    return True


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False)


def settle_ports(options: Options, *, program: Path) -> Settings:
    """Return the settings of a new stack.

    Raises PortTaken when a port is taken that a person named, or the gateway's or the admin's.
    """
    given: set[int] = set()

    def take(port: int | None, default: int, flag: str, what: str, *, named: bool) -> Address:
        wish = Wish(port=default if port is None else port, flag=flag, what=what, named=named)
        chosen = settle(wish, host=HOST, given_out=given)
        given.add(chosen)
        return Address(HOST, chosen)

    def inner(port: int | None, default: int, flag: str, what: str) -> Address:
        return take(port, default, flag, what, named=port is not None)

    return Settings(
        gateway=take(options.port, 8080, "--port", "the gateway", named=True),
        admin=take(options.admin_port, 19000, "--admin-port", "Envoy's admin", named=True),
        picker_grpc=inner(options.grpc_port, 9002, "--grpc-port", "the picker"),
        picker_health=inner(options.grpc_health_port, 9003, "--grpc-health-port", "the picker's health"),
        picker_metrics=inner(options.metrics_port, 9090, "--metrics-port", "the picker's metrics"),
        first_simulator_port=options.sim_port,
        replicas=options.replicas or DEFAULT_REPLICAS,
        model=options.model,
        envoy=program,
        envoy_workers=min(os.cpu_count() or 1, 4),
        config=options.config,
        failure_mode="FailOpen" if options.fail_open else "FailClose",
        picker_tls=options.secure_serving,
        simulator_arguments=tuple(shlex.split(options.sim_args)),
        picker_arguments=tuple(shlex.split(options.picker_args)),
    )


async def _foreground(options: Options, *, program: Path, folder: Folder, console: Console) -> None:
    if options.file is None:
        settings = settle_ports(options, program=program)
        plans = follow.wishes(standard(settings, folder=folder), folder=folder)
    else:
        plans = follow.edits(options.file, say=console.print)
    supervisor = Supervisor(
        folder=folder,
        envoy=program,
        clock=time.monotonic,
        say=console.print,
        file=str(options.file.absolute()) if options.file else "",
        any_ports=options.any_ports,
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show(folder, console=console))
        try:
            await supervisor.run(plans)
        finally:
            showing.cancel()
    console.print("stopped")


async def _show(folder: Folder, *, console: Console) -> None:
    stack = await until_ready(folder)
    console.print(_invitation(stack))
    if not console.is_terminal:
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            found = await asyncio.to_thread(control.find, folder)
            stack = (found and found.stack) or stack
            caption = "\n".join([*screen.problems(stack), "Ctrl-C stops the stack"])
            view = screen.table(stack, await observe(stack), caption=caption)
            live.update(view, refresh=True)
            await asyncio.sleep(1)


def _invitation(stack: Stack) -> str:
    body = json.dumps({"model": stack.model, "messages": [{"role": "user", "content": "Hello"}]})
    admin = f"Envoy's admin: {stack.admin}; " if stack.admin else ""
    head = f"ready: {stack.gateway} ({len(stack.replicas)} endpoints; {admin}logs: {stack.logs})"
    curl = f"try:   curl -i {stack.gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    return "\n".join([head, *screen.services(stack), curl])


async def _detach(options: Options, *, folder: Folder, console: Console) -> int:
    log = folder.logs / "up.log"
    command = [sys.executable, "-m", "pointsman", "up", *options.arguments()]
    with _new_log(folder, log) as output:
        child = subprocess.Popen(  # noqa: ASYNC220 - it outlives us, and nothing else waits here
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while child.poll() is None:
        found = await asyncio.to_thread(control.find, folder)
        if found is not None and found.stack is not None and found.stack.ready:
            console.print(_invitation(found.stack))
            return 0
        await asyncio.sleep(0.05)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or [f"it said nothing (log: {log})"]
    error = PointsmanError(last[0].removeprefix("pointsman: "))
    error.exit_code = child.returncode or 1
    raise error


def _new_log(folder: Folder, log: Path) -> IO[bytes]:
    try:
        folder.prepare()
        log.unlink(missing_ok=True)
        return open_private(log)
    except OSError as error:
        raise UserError(f"{log} cannot be written: {error.strerror}: make room, or set XDG_STATE_HOME") from None


async def _adjust(options: Options, *, folder: Folder, console: Console) -> int:
    try:
        stack = await asyncio.wait_for(until_ready(folder), START_TIMEOUT)
    except TimeoutError:
        raise Unavailable(f"the stack in {folder.path} does not become ready: see the logs in {folder.logs}") from None
    refuse_changes(options, stack=stack)
    if options.file is not None:
        console.print(f"the stack runs already: {stack.gateway}; it follows {options.file}")
        return 0
    wanted = options.replicas
    if wanted is None or wanted == len(stack.replicas):
        console.print(f"the stack runs already: {stack.gateway} ({len(stack.replicas)} endpoints)")
        return 0
    console.print(f"scaling from {len(stack.replicas)} to {wanted} endpoints")
    try:
        folder.write_wanted(Wanted(replicas=wanted))
    except OSError as error:
        raise Unavailable(
            f"{folder.wanted_file} cannot be written: {error.strerror}: make room and try again"
        ) from None
    deadline = time.monotonic() + 2 * START_TIMEOUT
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(control.find, folder)
        if found is None and not folder.is_supervised():
            raise Unavailable("the stack stopped while it was scaled")
        now = (found and found.stack) or stack
        ready = len(now.replicas) == wanted and all(replica.state == "ready" for replica in now.replicas)
        if ready and all(endpoint.picks is not None for endpoint in await observe(now)):
            console.print(f"the stack has {wanted} endpoints: {now.gateway}")
            return 0
        await asyncio.sleep(0.1)
    raise Unavailable(f"the stack did not reach {wanted} endpoints in time: see the logs in {stack.logs}")


def refuse_changes(options: Options, *, stack: Stack) -> None:
    """Say so when a flag asks for what cannot change while the stack runs."""
    file = str(options.file.absolute()) if options.file else ""
    if file and file != stack.file:
        raise UserError(f"the stack that runs is made from {stack.file or 'flags'}: `pointsman down` first")
    if stack.file and options.replicas is not None:
        raise UserError(f"--replicas cannot change a stack that is made from a file: edit {stack.file}")
    defaults = Options()
    asked = {
        "--port": (options.port, defaults.port, _port(stack.gateway)),
        "--admin-port": (options.admin_port, defaults.admin_port, _port(stack.admin)),
        "--model": (options.model, defaults.model, stack.model),
        "--fail-open": (options.fail_open, defaults.fail_open, stack.failure_mode == "FailOpen"),
        "--config": (options.config, defaults.config, None),
    }
    for flag, (value, default, current) in asked.items():
        if value not in (default, current):
            raise UserError(f"{flag} cannot change while the stack runs: `pointsman down` first")


def _port(url: str) -> int | None:
    return whole(url.rpartition(":")[2], most=65_535) if url else None

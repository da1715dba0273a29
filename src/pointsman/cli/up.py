"""`pointsman up`: the stack on this machine.

`up` on a stack that runs already changes what can be changed while it runs (the number of replicas) and refuses the
rest by name. `up -f FILE` runs what a SimulatorDeployment describes and follows the file. A detached stack is the same
command in a session of its own.
"""

import asyncio
import os
import shlex
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live

from pointsman.api import parse_any
from pointsman.core import loop
from pointsman.core.documents import read_yaml
from pointsman.core.errors import UserError
from pointsman.core.numbers import whole
from pointsman.local import control, detached, envoy, follow, running, screen
from pointsman.local.observe import observe
from pointsman.local.stack import Supervisor
from pointsman.local.standard import Settings, settled
from pointsman.local.state import MOST_REPLICAS, Folder, StackState, default_folder

DEFAULT_REPLICAS = 3


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Everything that `pointsman up` can be told. None is a default that may give way to a taken port."""

    replicas: int | None = None
    "Simulators to run (3), of each model; on a running stack, scale to this many."
    port: int = 8080
    "Port of the gateway."
    admin_port: int = 19000
    "Port of Envoy's admin."
    config: Path | None = None
    "EndpointPickerConfig file for the picker."
    model: str = "meta-llama/Llama-3.1-8B-Instruct"
    "Name of the model that the simulators serve."
    models: str = ""
    "Several models, with commas between: each has a pool of its own, and the model in a request's body decides."
    fail_open: bool = False
    "When no picker answers, serve from any endpoint instead of answering 503."
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
    "Additional flags for every simulator, as one string."
    picker_args: str = ""
    "Additional flags for the picker, as one string, such as '--explain --record decisions.jsonl'."
    secure_serving: bool = True
    "TLS between Envoy and the picker."
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None
    "Run what the SimulatorDeployment or LLMInferenceService in this file describes, and apply its edits."
    any_ports: bool = False
    "With -f: let the system choose the ports of Services, even where their own numbers are free."

    def check(self) -> None:
        """Refuse what cannot work before anything is started."""
        if self.replicas is not None and not 1 <= self.replicas <= MOST_REPLICAS:
            raise UserError(f"--replicas {self.replicas} is out of range: choose from 1 to {MOST_REPLICAS}")
        if self.config is not None and not self.config.is_file():
            raise UserError(f"--config {self.config} is not a file: name an EndpointPickerConfig file")
        self._check_models()
        self._check_file()

    def _check_models(self) -> None:
        if not self.models:
            return
        named = self.named_models()
        if len(named) < 2 or len(set(named)) < len(named):
            raise UserError(f"--models {self.models}: name two or more, each once; one alone is --model")
        if self.model != UpOptions.model:
            raise UserError("--model and --models exclude each other: name all of them in --models")
        if self.fail_open:
            raise UserError("--fail-open cannot be combined with --models: without the router nobody knows the pool")

    def named_models(self) -> tuple[str, ...]:
        """Return the models that have a pool each, if any were named."""
        return tuple(name for each in self.models.split(",") if (name := each.strip()))

    def _check_file(self) -> None:
        if self.file is None:
            if self.any_ports:
                raise UserError("--any-ports is about Services, which come with -f: name a file, or use --port 0")
            return
        said = replace(self, file=None, any_ports=False, detach=False).arguments()
        other = next((flag for flag in said if flag not in UpOptions().arguments()), None)
        if other is not None:
            raise UserError(f"{other.partition('=')[0]} cannot be combined with -f: say it in {self.file}")
        parse_any(read_yaml(self.file), source=str(self.file))

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
        flags += [f"--models={self.models}"] if self.models else []
        flags += [f"--picker-args={self.picker_args}"] if self.picker_args else []
        flags += [f"--file={self.file.absolute()}"] if self.file else []
        flags += ["--any-ports"] if self.any_ports else []
        flags += ["--fail-open"] if self.fail_open else []
        return flags if self.secure_serving else [*flags, "--no-secure-serving"]


def up(options: UpOptions | None = None) -> int:
    """Run the stack on this machine: Envoy, a picker, and simulators behind it."""
    options = options or UpOptions()
    options.check()
    os.umask(0o077)  # configurations, logs, and what the parts write: nobody else's business
    folder = Folder(default_folder(os.environ))
    console = screen.console()
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


def settings_of(options: UpOptions) -> Settings:
    """Return what the flags say, with ports that are free now.

    Raises PortTaken when a port is taken that a person named, or the gateway's or the admin's.
    """
    return Settings(
        places=settled(
            port=options.port,
            admin_port=options.admin_port,
            grpc_port=options.grpc_port,
            grpc_health_port=options.grpc_health_port,
            metrics_port=options.metrics_port,
        ),
        first_simulator_port=options.sim_port,
        replicas=options.replicas or DEFAULT_REPLICAS,
        model=options.model,
        models=options.named_models(),
        envoy_workers=min(os.cpu_count() or 1, 4),
        config=options.config and options.config.absolute(),
        failure_mode="FailOpen" if options.fail_open else "FailClose",
        picker_tls=options.secure_serving,
        simulator_arguments=tuple(shlex.split(options.sim_args)),
        picker_arguments=tuple(shlex.split(options.picker_args)),
    )


async def _foreground(options: UpOptions, *, program: Path, folder: Folder, console: Console) -> None:
    if options.file is None:
        plans = follow.wishes(settings_of(options), folder=folder)
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
    loop.on_signals(supervisor.stop, numbers=(*loop.ENDING, signal.SIGHUP))
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show(folder, console=console))
        try:
            await supervisor.run(plans)
        finally:
            showing.cancel()
    console.print("stopped")


async def _show(folder: Folder, *, console: Console) -> None:
    stack = await running.until_ready(folder)
    console.print(screen.invitation(stack))
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


async def _detach(options: UpOptions, *, folder: Folder, console: Console) -> int:
    if options.file is not None:  # what the stack itself says goes to its log
        for notice in follow.plan_of(options.file.read_bytes(), name=str(options.file)).notices:
            console.print(f"note: {notice}")
    console.print(screen.invitation(await detached.start(options.arguments(), folder=folder)))
    return 0


async def _adjust(options: UpOptions, *, folder: Folder, console: Console) -> int:
    stack = await running.ready(folder)
    refuse_changes(options, stack=stack)
    if options.file is not None:
        console.print(f"the stack runs already: {stack.gateway}; it follows {options.file}")
        return 0
    wanted = options.replicas
    if wanted is None or wanted * stack.pools == len(stack.replicas):
        console.print(f"the stack runs already: {stack.gateway} ({len(stack.replicas)} endpoints)")
        return 0
    console.print(f"scaling from {len(stack.replicas)} to {wanted * stack.pools} endpoints")
    now = await running.scale(folder, replicas=wanted, logs=stack.logs)
    console.print(f"the stack has {wanted * stack.pools} endpoints: {now.gateway}")
    return 0


def refuse_changes(options: UpOptions, *, stack: StackState) -> None:
    """Raise UserError for flags that cannot change while the stack runs."""
    file = str(options.file.absolute()) if options.file else ""
    if file and file != stack.file:
        raise UserError(f"the stack that runs is made from {stack.file or 'flags'}: `pointsman down` first")
    if stack.file and options.replicas is not None:
        raise UserError(f"--replicas cannot change a stack that is made from a file: edit {stack.file}")
    defaults = UpOptions()
    asked = {
        "--port": (options.port, defaults.port, _port(stack.gateway)),
        "--admin-port": (options.admin_port, defaults.admin_port, _port(stack.admin)),
        "--model": (options.model, defaults.model, stack.model),
        "--models": (options.named_models(), defaults.named_models(), stack.models),
        "--fail-open": (options.fail_open, defaults.fail_open, stack.failure_mode == "FailOpen"),
        "--config": (options.config, defaults.config, None),
    }
    for flag, (value, default, current) in asked.items():
        if value not in (default, current):
            raise UserError(f"{flag} cannot change while the stack runs: `pointsman down` first")


def _port(url: str) -> int | None:
    return whole(url.rpartition(":")[2], most=65_535) if url else None

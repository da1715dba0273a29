"""The command line. One module per noun; this one only names them and turns errors into one sentence and an exit code.

Commands are registered by import path, so `pointsman status` does not pay for importing the picker.

One image serves every part. Who starts it with flags only, because the flags are those of another image's own
executable, gets the part whose flags they are; where both have them, POINTSMAN_COMMAND says which part is meant.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module

from cyclopts import App, CycloptsError, Group

from pointsman.cli import goflags
from pointsman.core import faults
from pointsman.core.errors import PointsmanError, UserError, find_ours


def _version() -> str:
    from importlib.metadata import version  # with what follows: only who asks pays for it

    from pointsman.core.form import describe

    return describe(version("pointsman"))


app = App(
    name="pointsman",
    version=_version,
    help="llm-d inference scheduling: picker, simulator, and the stack around them.",
    version_flags=["--version"],
    help_format="plaintext",  # a Markdown reader costs more to import than all the rest of --help
)
LOCAL = Group("On this machine", sort_key=1)
SERVERS = Group("Servers", sort_key=2)
CLUSTER = Group("On a cluster", sort_key=3)
TOOLS = Group("Analyze", sort_key=4)

# Where each command is, its group, and what `pointsman --help` says of it: kept here, so that help imports no command.
_COMMANDS = (
    (
        "up",
        "pointsman.cli.up:up",
        LOCAL,
        "Run Envoy, a picker and simulators; or what a resource in a file describes.",
    ),
    ("status", "pointsman.cli.status:status", LOCAL, "Show what runs, where, and how busy it is."),
    ("down", "pointsman.cli.status:down", LOCAL, "Stop the stack."),
    (
        "demo",
        "pointsman.cli.demo:demo",
        LOCAL,
        "Start a stack, send requests, compare each pick with the endpoint that answered, stop.",
    ),
    ("epp", "pointsman.cli.epp:epp", SERVERS, "Run the endpoint picker for Envoy's ext_proc filter."),
    (
        "bbr",
        "pointsman.cli.bbr:bbr",
        SERVERS,
        "Run the body-based router: it chooses the pool by the model in a request's body.",
    ),
    ("sim", "pointsman.cli.sim:sim", SERVERS, "Run the vLLM simulator."),
    ("operator", "pointsman.cli.operator:operator", SERVERS, "Run the Kubernetes operator."),
    (
        "render",
        "pointsman.cli.render:render",
        CLUSTER,
        "Print the Kubernetes objects of a SimulatorDeployment, SchedulerInstall or LLMInferenceService.",
    ),
    ("diff", "pointsman.cli.render:diff", CLUSTER, "Compare a SimulatorDeployment with what the cluster has."),
    ("bundle", "pointsman.cli.bundle:bundle", CLUSTER, "Turn OLM bundles into manifests or Helm charts."),
    (
        "doctor",
        "pointsman.cli.doctor:doctor",
        CLUSTER,
        "Find out why requests fail or picks are ignored, and what to do about it; also --local.",
    ),
    (
        "verify",
        "pointsman.cli.verify:verify",
        CLUSTER,
        "Check, by which Pod answers, that the same prompt stays on one Pod and others spread.",
    ),
    (
        "platform",
        "pointsman.cli.platform:platform",
        CLUSTER,
        "Install operators on clusters without OLM, from their bundles.",
    ),
    ("crds", "pointsman.cli.crds:crds", CLUSTER, "Manage the inference CRDs: install, upgrade, adopt, uninstall."),
    ("replay", "pointsman.cli.replay:run", TOOLS, "Decide recorded requests again under another configuration."),
)
# Commands with the flags of a Go program, and what has these flags.
_FLAGS = {
    "epp": ("pointsman.epp.settings", "Settings"),
    "bbr": ("pointsman.epp.bbr.settings", "BbrSettings"),
    "operator": ("pointsman.cli.operator", "OperatorOptions"),
}
for _name, _where, _group, _help in _COMMANDS:
    app.command(_where, name=_name, group=_group, help=_help)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit; a mistake of the user is one sentence on stderr, never a traceback."""
    sys.exit(_run(list(sys.argv[1:] if argv is None else argv)))


def epp_scheduler() -> None:
    """Entry point under the Go picker's name: same flags, no sub-command."""
    main(["epp", *sys.argv[1:]])


def body_based_router() -> None:
    """Entry point under the Go router's names: same flags, no sub-command."""
    main(["bbr", *sys.argv[1:]])


def llm_d_inference_sim() -> None:
    """Entry point under the Go simulator's name: same flags, no sub-command."""
    main(["sim", *sys.argv[1:]])


def with_command(argv: Sequence[str], *, environment: Mapping[str, str]) -> list[str]:
    """Return the command line with a command in front of flags without one: as POINTSMAN_COMMAND says, or the flags.

    Raises UserError when the one names none of ours, or the others cannot tell.
    """
    named = environment.get("POINTSMAN_COMMAND", "")
    if argv and not argv[0].startswith("-"):
        return list(argv)
    if not named:
        return [*_guessed(argv), *argv]
    commands = [name for name in app if not name.startswith("-")]
    if named not in commands:
        raise UserError(f"POINTSMAN_COMMAND={named} is no command: set it to one of {', '.join(commands)}, or unset it")
    return [named, *argv]


def _guessed(argv: Sequence[str]) -> list[str]:
    """Return the command whose flags these are; none where they are the program's own."""
    flags = (word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-"))
    named = (flag.replace("_", "-") for flag in flags if flag[:1].isalpha())  # -5 is a value
    given = {goflags.without_humps(flag) for flag in named}
    if not given or given <= {"help", "h", "version"}:
        return []
    takers = [name for name in ("epp", "sim") if given <= _flags_of(name)]
    if len(takers) == 1:
        return takers
    if not takers and given <= _flags_of("bbr"):
        return ["bbr"]
    if takers:
        what = f"{_flags(given)} may be the picker's or the simulator's"
    else:
        near = {name: given - _flags_of(name) for name in ("epp", "sim")}
        what = f"no server takes them all (epp not {_flags(near['epp'])}, sim not {_flags(near['sim'])})"
    raise UserError(f"{what}: set POINTSMAN_COMMAND to epp or sim, or write the command before the flags")


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in sorted(names))


def _flags_of(name: str) -> frozenset[str]:
    """Return the flags of a server's command, without their dashes."""
    if name == "sim":
        from pointsman.sim.options import IGNORED
        from pointsman.sim.settings import OPTIONS

        known = {*OPTIONS, *IGNORED, "config"}
    elif name == "bbr":
        from pointsman.epp.bbr.settings import BbrSettings

        known = {field.name.replace("_", "-") for field in fields(BbrSettings)}
    else:
        from pointsman.epp.settings import Settings

        known = {field.name.replace("_", "-") for field in fields(Settings)}
    return frozenset({*known, *(f"no-{flag}" for flag in known), "v", "help", "h"})


def _run(argv: list[str]) -> int:
    try:
        argv = with_command(argv, environment=os.environ)
        if argv and argv[0] in _FLAGS:
            argv = [argv[0], *goflags.normalized(argv[1:], switches=_switches(argv[0]))]
        result = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except (PointsmanError, BaseExceptionGroup) as error:
        ours = find_ours(error)
        if ours is None:
            return _internal(error)
        _complain(str(ours))
        return ours.exit_code
    except Exception as error:  # the last place where it can be told; the log of a server is where this goes
        return _internal(error)
    return result if isinstance(result, int) else 0


def _switches(command: str) -> frozenset[str]:
    """Return the flags of the picker or the operator that have no value of their own."""
    module, name = _FLAGS[command]
    options = fields(getattr(import_module(module), name))
    return frozenset(each.name.replace("_", "-") for each in options if each.type is bool)


def _internal(error: BaseException) -> int:
    _complain(f"internal error: {faults.sentence(error)}")
    return 1


def _complain(sentence: str) -> None:
    print(f"pointsman: {sentence}", file=sys.stderr)  # noqa: T201 - this is where the program speaks

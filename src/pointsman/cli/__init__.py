"""The command line. One module per noun; this one only names them and turns errors into one sentence and an exit code.

Commands are registered by import path, so `pointsman status` does not pay for importing the picker.

One image serves every part. Who starts it with flags only, because the flags are those of another image's own
executable, says in POINTSMAN_COMMAND which part is meant.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from cyclopts import App, CycloptsError, Group

from pointsman.core import faults
from pointsman.core.errors import PointsmanError, UserError, find_ours

app = App(
    name="pointsman",
    help="llm-d inference scheduling: picker, simulator, and the stack around them.",
    version_flags=["--version"],
    help_format="plaintext",  # a Markdown reader costs more to import than all the rest of --help
)
LOCAL = Group("On this machine", sort_key=1)
SERVERS = Group("Servers", sort_key=2)
CLUSTER = Group("On a cluster", sort_key=3)
TOOLS = Group("Look closer", sort_key=4)

# Where each command is, its group, and what `pointsman --help` says of it: kept here, so that help imports no command.
_COMMANDS = (
    (
        "up",
        "pointsman.cli.up:up",
        LOCAL,
        "Run Envoy, a picker and simulators; or what a SimulatorDeployment describes.",
    ),
    ("status", "pointsman.cli.up:status", LOCAL, "Show what runs, where, and how busy it is."),
    ("down", "pointsman.cli.up:down", LOCAL, "Stop the stack."),
    (
        "demo",
        "pointsman.cli.demo:demo",
        LOCAL,
        "Start a stack, send requests, compare each pick with the endpoint that answered, stop.",
    ),
    ("doctor", "pointsman.cli.doctor:doctor", LOCAL, "Find out why requests fail, and what to do about it."),
    ("epp", "pointsman.cli.epp:epp", SERVERS, "Run the endpoint picker for Envoy's ext_proc filter."),
    ("sim", "pointsman.cli.sim:sim", SERVERS, "Run the vLLM simulator."),
    ("operator", "pointsman.cli.operator:operator", SERVERS, "Run the Kubernetes operator."),
    ("render", "pointsman.cli.render:render", CLUSTER, "Print the Kubernetes objects of a SimulatorDeployment."),
    ("diff", "pointsman.cli.render:diff", CLUSTER, "Compare a SimulatorDeployment with what the cluster has."),
    ("bundle", "pointsman.cli.bundle:bundle", CLUSTER, "Turn OLM bundles into manifests or Helm charts."),
    ("crds", "pointsman.cli.crds:crds", CLUSTER, "Manage the inference CRDs: install, upgrade, adopt, uninstall."),
    ("replay", "pointsman.cli.replay:run", TOOLS, "Decide recorded requests again under another configuration."),
)
for _name, _where, _group, _help in _COMMANDS:
    app.command(_where, name=_name, group=_group, help=_help)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit; a mistake of the user is one sentence on stderr, never a traceback."""
    sys.exit(_run(list(sys.argv[1:] if argv is None else argv)))


def epp_scheduler() -> None:
    """Entry point under the Go picker's name: same flags, no sub-command."""
    main(["epp", *sys.argv[1:]])


def llm_d_inference_sim() -> None:
    """Entry point under the Go simulator's name: same flags, no sub-command."""
    main(["sim", *sys.argv[1:]])


def with_command(argv: Sequence[str], *, environment: Mapping[str, str]) -> list[str]:
    """Return the command line with the command that POINTSMAN_COMMAND names put in front of flags without one.

    Raises UserError when it names none of ours.
    """
    named = environment.get("POINTSMAN_COMMAND", "")
    if not named or (argv and not argv[0].startswith("-")):
        return list(argv)
    commands = [name for name in app if not name.startswith("-")]
    if named not in commands:
        raise UserError(f"POINTSMAN_COMMAND={named} is no command: set it to one of {', '.join(commands)}, or unset it")
    return [named, *argv]


def last_of_each(argv: Sequence[str]) -> list[str]:
    """Return the command line with the last occurrence of each flag, as Go's flag parsing does."""
    pairs: list[list[str]] = []
    for word in argv:
        follows = pairs and pairs[-1][0].startswith("-") and len(pairs[-1]) == 1 and "=" not in pairs[-1][0]
        if follows and not word.startswith("-"):
            pairs[-1].append(word)
        else:
            pairs.append([word])
    last = {pair[0].partition("=")[0]: at for at, pair in enumerate(pairs)}
    kept = (p for at, p in enumerate(pairs) if not p[0].startswith("-") or last[p[0].partition("=")[0]] == at)
    return [word for pair in kept for word in pair]


def _run(argv: list[str]) -> int:
    try:
        argv = with_command(argv, environment=os.environ)
        if argv[:1] in (["epp"], ["operator"]):
            argv = last_of_each(argv)
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


def _internal(error: BaseException) -> int:
    _complain(f"internal error: {faults.sentence(error)}")
    return 1


def _complain(sentence: str) -> None:
    print(f"pointsman: {sentence}", file=sys.stderr)  # noqa: T201 - this is where the program speaks

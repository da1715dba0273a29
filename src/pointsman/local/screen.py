"""The stack as a table for people: endpoints, what they are doing, how often they were picked."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pointsman.local.observe import ObservedEndpoint
from pointsman.local.state import StackState

_COLOURS = {"ready": "green", "starting": "yellow", "leaving": "yellow"}


def console() -> Console:
    """Return where the commands about the stack speak: their text as it is, whatever is in it."""
    return Console(soft_wrap=True, highlight=False, markup=False)


def table(stack: StackState, endpoints: Sequence[ObservedEndpoint], *, caption: str | None = None) -> Table:
    """Return the table of one moment."""
    title = f"{stack.gateway}  ·  {_models(stack)}  ·  {stack.failure_mode}"
    view = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in ("endpoint", "address", "state"):
        view.add_column(heading)
    for heading in ("running", "waiting", "picks"):
        view.add_column(heading, justify="right")
    for endpoint in endpoints:
        colour = _COLOURS.get(endpoint.state, "red")
        counts = (_count(n) for n in (endpoint.running, endpoint.waiting, endpoint.picks))
        view.add_row(endpoint.name, endpoint.address, Text(endpoint.state, style=colour), *counts)
    return view


def invitation(stack: StackState) -> str:
    """Return what a person may want to know of a stack that has just become ready, and a command to try."""
    admin = f"Envoy's admin: {stack.admin}; " if stack.admin else ""
    head = f"ready: {stack.gateway} ({len(stack.replicas)} endpoints; {admin}logs: {stack.logs})"
    tries = [_curl(stack, model) for model in stack.models or (stack.model,)]
    return "\n".join([head, *watch(stack), *services(stack), *tries])


def _curl(stack: StackState, model: str) -> str:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    return f"try:   curl -i {stack.gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"


def _models(stack: StackState) -> str:
    return ", ".join(stack.models) or stack.model


def watch(stack: StackState) -> list[str]:
    """Return where a person can watch the picker, in a browser."""
    return [f"watch: {each['metrics']}/" for each in stack.pickers.values()]


def lines(stack: StackState, endpoints: Sequence[ObservedEndpoint]) -> list[str]:
    """Return the same as plain lines, for pipes and logs."""
    state = "degraded" if stack.problems else "ready" if stack.ready else "starting"
    head = f"{state}: {stack.gateway} ({_models(stack)}, {stack.failure_mode})"
    return [head, *problems(stack), *(_line(endpoint) for endpoint in endpoints), *services(stack)]


def problems(stack: StackState) -> list[str]:
    """Return what is wrong with the stack beyond its parts."""
    return [f"  degraded: {problem}" for problem in stack.problems]


def services(stack: StackState) -> list[str]:
    """Return where each Service is."""
    return [f"  Service {name} is at {place}" for name, place in stack.services.items()]


def _line(e: ObservedEndpoint) -> str:
    counts = f"running={_count(e.running)} waiting={_count(e.waiting)} picks={_count(e.picks)}"
    return f"  {e.name} {e.address} {e.state} {counts}"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)

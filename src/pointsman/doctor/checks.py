"""What follows from the facts: a chain of small checks, from the first thing that must hold to the proof.

Each check looks at one thing and returns a finding. The order is that of causes: what a later check complains of may be
the consequence of what an earlier one found, so the first that failed is the one to act on. A check whose facts are
missing because of an earlier failure is skipped, never guessed.

Clean statistics and a correct configuration prove nothing: only the probe does, whose answer must come from the Pod
that was picked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pointsman.doctor.facts import ROUTER, Filter, Host, Stack

Verdict = Literal["ok", "skipped", "warning", "failed"]
ORDER: tuple[Verdict, ...] = ("ok", "skipped", "warning", "failed")
NAMESPACE = "envoy.lb"
STALE = 2.0
_DUPLEX = "FULL_DUPLEX_STREAMED"
_SEND = {"SEND", "DEFAULT"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Verdict
    evidence: str
    cause: str = ""
    fix: str = ""
    """A command to copy."""


Check = Callable[[Stack], Finding]


def stack_runs(stack: Stack) -> Finding:
    """Whether there is anything to look at."""
    if not stack.running:
        return _failed("stack runs", "nobody supervises one", "no stack runs", "pointsman up --detach")
    if stack.problems:
        told = "; ".join(stack.problems)
        return Finding(check="stack runs", verdict="warning", evidence=told, cause=told, fix="pointsman status")
    return _ok("stack runs", "its supervisor answers")


def servers_run(stack: Stack) -> Finding:
    """Whether the model servers are there."""
    name = "model servers run"
    if not stack.running:
        return _skipped(name)
    away = [server for server in stack.servers if server.state != "ready"]
    if away or not stack.servers:
        told = ", ".join(f"{server.name} is {server.state}" for server in away) or "there are none"
        first = away[0].name if away else "simulator-0"
        return _failed(name, told, "a model server does not answer", _log(stack, first))
    return _ok(name, f"{len(stack.servers)} are ready")


def admin_answers(stack: Stack) -> Finding:
    """Whether Envoy can be asked."""
    name = "Envoy answers"
    if not stack.running:
        return _skipped(name)
    if not stack.admin:
        return _without(name, "a gateway")
    if stack.gateway is None:
        return _failed(name, f"no answer from {stack.admin}", "Envoy is down or hangs", _log(stack, stack.gateway_log))
    return _ok(name, stack.admin)


def filter_is_there(stack: Stack) -> Finding:
    """Whether requests get to the picker at all."""
    name = "the filter that asks the picker is there"
    if stack.gateway is None or not stack.metrics:
        return _skipped(name)
    if not stack.gateway.filters:
        return _failed(name, "config_dump has no ExternalProcessor", "requests are not shown to the picker", _AGAIN)
    return _ok(name, ", ".join(f"listener {one.listener}" for one in stack.gateway.filters))


def filter_is_in_order(stack: Stack) -> Finding:
    """Whether it decides before the request is sent."""
    name = "the filter comes before the router"
    return _each(stack, name, _order)


def _order(one: Filter) -> str:
    return "" if one.after[-1:] == (ROUTER,) else f"after it comes {', '.join(one.after) or 'nothing'}"


def modes_are_right(stack: Stack) -> Finding:
    """Whether the picker sees the request's body, and its answer is taken."""
    return _each(stack, "the filter's modes and metadata are right", _modes)


def _modes(one: Filter) -> str:
    body = one.modes["request_body_mode"]
    if one.modes["request_header_mode"] not in _SEND:
        return f"request_header_mode is {one.modes['request_header_mode']}: the picker is not asked"
    if body != _DUPLEX:
        return f"request_body_mode is {body}: the picker decides without the prompt, or Envoy drops its answer"
    if one.modes["request_trailer_mode"] != "SEND":
        return "request_trailer_mode is not SEND, which full duplex needs"
    if NAMESPACE not in one.receives:
        return f"metadata of {NAMESPACE} is not received: the pick is dropped"
    return ""


def picker_serves(stack: Stack) -> Finding:
    """Whether the picker is well, by Envoy's gRPC health check and by its own word."""
    name = "the picker serves"
    if not stack.running:
        return _skipped(name)
    if not stack.metrics:
        return _without(name, "a picker")
    log = _log(stack, stack.picker_log)
    if stack.picker is None:
        return _failed(name, f"no answer from {stack.metrics}", "the picker is down or hangs", log)
    if stack.picker.health != "ok":
        return _failed(name, stack.picker.health, "the picker says that it cannot serve", log)
    sick = _sick(stack, {one.cluster for one in stack.gateway.filters} if stack.gateway else set())
    if sick:
        return _failed(name, sick, "Envoy's gRPC health check of the picker fails", log)
    return _ok(name, "by its own word" if stack.gateway is None else "by its own word and Envoy's health check")


def members_are_the_servers(stack: Stack) -> Finding:
    """Whether Envoy knows every model server that a request can be sent to; one for prefill is for others to ask."""
    name = "Envoy has the model servers"
    if stack.gateway is None:
        return _skipped(name)
    helpers = {seen.address for seen in (stack.picker.endpoints if stack.picker else ()) if seen.role == "prefill"}
    wanted = {server.address for server in stack.servers if server.state == "ready"} - helpers
    pickers = {one.cluster for one in stack.gateway.filters}
    known = {h.address for c, hosts in stack.gateway.clusters.items() if c not in pickers for h in hosts if h.healthy}
    missing = sorted(wanted - known)
    if missing:
        return _failed(name, f"{', '.join(missing)} not there or not healthy", "a pick of it would be refused", _AGAIN)
    return _ok(name, f"{len(wanted)} healthy members")


def endpoints_are_fresh(stack: Stack) -> Finding:
    """Whether the picker decides by what is true now."""
    name = "the picker's endpoints are fresh"
    if stack.picker is None:
        return _skipped(name)
    known = {seen.address: seen for seen in stack.picker.endpoints}
    wanted = [server for server in stack.servers if server.state == "ready"]
    missing = [server.name for server in wanted if server.address not in known]
    if missing:
        return _failed(name, f"it does not know {', '.join(missing)}", "its list of endpoints is old", _AGAIN)
    old = [s.name for s in wanted if (age := known[s.address].age) is None or age > STALE]
    if old:
        cause = "their metrics do not answer: their load is guessed"
        return _failed(name, f"no metrics of {', '.join(old)} within {STALE:g} s", cause, _log(stack, old[0]))
    out = [s.name for s in wanted if known[s.address].standing != "in"]
    if out:
        told = f"{', '.join(out)} ejected"
        return Finding(
            check=name, verdict="warning", evidence=told, cause="their requests failed", fix="pointsman status"
        )
    return _ok(name, f"{len(wanted)} known, none older than {STALE:g} s")


def answer_is_from_the_pick(stack: Stack) -> Finding:
    """The proof: who answered is who was picked."""
    name = "the answer comes from the picked Pod"
    if not stack.probes:
        return _skipped(name)
    names = {server.address: server.name for server in stack.servers}
    for probe in stack.probes:
        picked = names.get(probe.picked, probe.picked)
        if probe.status != 200:
            told = probe.why or f"status {probe.status}"
            return _failed(name, told, "a request through the gateway fails", _log(stack, stack.gateway_log))
        if not picked and not stack.metrics:
            return _without(name, "a picker")
        if not picked:
            return _failed(name, f"{probe.answered} answered", "the picker was not asked (fail-open hides it)", _AGAIN)
        if picked != probe.answered:
            told = f"{picked} was picked, {probe.answered or 'nobody known'} answered"
            return _failed(name, told, "Envoy does not follow the pick", _AGAIN)
    return _ok(name, f"{len(stack.probes)} of {len(stack.probes)} requests")


def same_prompt_same_pod(stack: Stack) -> Finding:
    """Whether the prefix cache is used: the same prompt goes where it was before."""
    name = "the same prompt goes to the same Pod"
    answered = [probe.answered for probe in stack.probes if probe.status == 200]
    if len(answered) < 2 or not stack.metrics:
        return _skipped(name)
    if len(set(answered)) > 1:
        told = " then ".join(answered)
        cause = "no prefix scorer decides, or load outweighs it"
        return Finding(
            check=name,
            verdict="warning",
            evidence=told,
            cause=cause,
            fix=f"curl {stack.metrics}/debug/decisions?last=2",
        )
    return _ok(name, f"{answered[0]} each time")


_AGAIN = "pointsman down && pointsman up --detach"

CHAIN: tuple[Check, ...] = (
    stack_runs,  # nothing else can be seen without
    servers_run,  # whoever is picked must answer
    admin_answers,  # what Envoy does is asked of Envoy
    picker_serves,  # a filter that asks nobody is right in vain
    filter_is_there,  # the manual's first mistake
    filter_is_in_order,  # a pick after the router changes nothing
    modes_are_right,  # in most modes the pick comes too late or is dropped
    members_are_the_servers,  # a pick that Envoy does not know is refused
    endpoints_are_fresh,  # a pick by old figures is a bad pick
    answer_is_from_the_pick,  # the proof
    same_prompt_same_pod,  # what scheduling is for
)


def examine(stack: Stack) -> list[Finding]:
    """Return what every check finds, in order."""
    return [check(stack) for check in CHAIN]


def first_cause(findings: list[Finding]) -> Finding | None:
    """Return the finding to act on first; None when all is well."""
    for verdict in ("failed", "warning"):
        for finding in findings:
            if finding.verdict == verdict:
                return finding
    return None


def _each(stack: Stack, name: str, complaint: Callable[[Filter], str]) -> Finding:
    filters = stack.gateway.filters if stack.gateway else ()
    if not filters:
        return _skipped(name)
    told = [f"listener {one.listener}: {said}" for one in filters if (said := complaint(one))]
    if told:
        return _failed(name, "; ".join(told), "Envoy's configuration is not the one that we render", _AGAIN)
    return _ok(name, f"{len(filters)} of {len(filters)}")


def _sick(stack: Stack, clusters: set[str]) -> str:
    hosts: list[Host] = [
        h for name in clusters for h in (stack.gateway.clusters.get(name, ()) if stack.gateway else ())
    ]
    return "; ".join(f"{host.address}: {host.why}" for host in hosts if not host.healthy)


def _ok(check: str, evidence: str) -> Finding:
    return Finding(check=check, verdict="ok", evidence=evidence)


def _log(stack: Stack, part: str) -> str:
    return f"tail -n 50 {stack.logs}/{part}.log"


def _without(check: str, part: str) -> Finding:
    return Finding(check=check, verdict="skipped", evidence=f"this stack is without {part}")


def _skipped(check: str) -> Finding:
    return Finding(check=check, verdict="skipped", evidence="what it looks at is missing")


def _failed(check: str, evidence: str, cause: str, fix: str) -> Finding:
    return Finding(check=check, verdict="failed", evidence=evidence, cause=cause, fix=fix)

"""What follows from the facts: a chain of small checks, from the first thing that must hold to the proof.

Each check looks at one thing and returns a finding. The order is that of causes: what a later check complains of may be
the consequence of what an earlier one found, so the first that failed is the one to act on. A check whose facts are
missing because of an earlier failure is skipped, never guessed.

Clean statistics and a correct configuration prove nothing: only the probe does, whose answer must come from the Pod
that was picked.
"""

from collections.abc import Callable

from pointsman.doctor.envoy import METADATA, ROUTER, Filter, Host
from pointsman.doctor.facts import Stack
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned

STALE = 2.0
_DUPLEX = "FULL_DUPLEX_STREAMED"
_SEND = {"SEND", "DEFAULT"}

Check = Callable[[Stack], Finding]


def stack_runs(stack: Stack) -> Finding:
    """Whether there is anything to look at."""
    if not stack.running:
        return failed("stack runs", "nobody supervises one", cause="no stack runs", fix="pointsman up --detach")
    if stack.problems:
        told = "; ".join(stack.problems)
        return warned("stack runs", told, cause=told, fix="pointsman status")
    return ok("stack runs", "its supervisor answers")


def servers_run(stack: Stack) -> Finding:
    """Whether the model servers are there."""
    name = "model servers run"
    if not stack.running:
        return skipped(name)
    away = [server for server in stack.servers if server.state != "ready"]
    if away or not stack.servers:
        told = ", ".join(f"{server.name} is {server.state}" for server in away) or "there are none"
        first = away[0].name if away else "simulator-0"
        return failed(name, told, cause="a model server does not answer", fix=_log(stack, first))
    return ok(name, f"{len(stack.servers)} are ready")


def admin_answers(stack: Stack) -> Finding:
    """Whether Envoy can be asked."""
    name = "Envoy answers"
    if not stack.running:
        return skipped(name)
    if not stack.admin:
        return _without(name, "a gateway")
    if stack.gateway is None:
        return failed(
            name, f"no answer from {stack.admin}", cause="Envoy is down or hangs", fix=_log(stack, stack.gateway_log)
        )
    return ok(name, stack.admin)


def filter_is_there(stack: Stack) -> Finding:
    """Whether requests get to the picker at all."""
    name = "the filter that asks the picker is there"
    if stack.gateway is None or not stack.metrics:
        return skipped(name)
    if not stack.gateway.filters:
        return failed(
            name, "config_dump has no ExternalProcessor", cause="requests are not shown to the picker", fix=_AGAIN
        )
    return ok(name, ", ".join(f"listener {one.listener}" for one in stack.gateway.filters))


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
    if METADATA not in one.receives:
        return f"metadata of {METADATA} is not received: the pick is dropped"
    return ""


def picker_serves(stack: Stack) -> Finding:
    """Whether the picker is well, by Envoy's gRPC health check and by its own word."""
    name = "the picker serves"
    if not stack.running:
        return skipped(name)
    if not stack.metrics:
        return _without(name, "a picker")
    log = _log(stack, stack.picker_log)
    if stack.picker is None:
        return failed(name, f"no answer from {stack.metrics}", cause="the picker is down or hangs", fix=log)
    if stack.picker.health != "ok":
        return failed(name, stack.picker.health, cause="the picker says that it cannot serve", fix=log)
    sick = _sick(stack, {one.cluster for one in stack.gateway.filters} if stack.gateway else set())
    if sick:
        return failed(name, sick, cause="Envoy's gRPC health check of the picker fails", fix=log)
    return ok(name, "by its own word" if stack.gateway is None else "by its own word and Envoy's health check")


def members_are_the_servers(stack: Stack) -> Finding:
    """Whether Envoy knows every model server that a request can be sent to; one for prefill is for others to ask."""
    name = "Envoy has the model servers"
    if stack.gateway is None:
        return skipped(name)
    helpers = {seen.address for seen in (stack.picker.endpoints if stack.picker else ()) if seen.role == "prefill"}
    wanted = {server.address for server in stack.servers if server.state == "ready"} - helpers
    pickers = {one.cluster for one in stack.gateway.filters}
    known = {h.address for c, hosts in stack.gateway.clusters.items() if c not in pickers for h in hosts if h.healthy}
    missing = sorted(wanted - known)
    if missing:
        return failed(
            name, f"{', '.join(missing)} not there or not healthy", cause="a pick of it would be refused", fix=_AGAIN
        )
    return ok(name, f"{len(wanted)} healthy members")


def endpoints_are_fresh(stack: Stack) -> Finding:
    """Whether the picker decides by what is true now."""
    name = "the picker's endpoints are fresh"
    if stack.picker is None:
        return skipped(name)
    known = {seen.address: seen for seen in stack.picker.endpoints}
    wanted = [server for server in stack.servers if server.state == "ready"]
    missing = [server.name for server in wanted if server.address not in known]
    if missing:
        return failed(name, f"it does not know {', '.join(missing)}", cause="its list of endpoints is old", fix=_AGAIN)
    old = [s.name for s in wanted if (age := known[s.address].age) is None or age > STALE]
    if old:
        cause = "their metrics do not answer: their load is guessed"
        return failed(name, f"no metrics of {', '.join(old)} within {STALE:g} s", cause=cause, fix=_log(stack, old[0]))
    out = [s.name for s in wanted if known[s.address].standing != "in"]
    if out:
        told = f"{', '.join(out)} ejected"
        return warned(name, told, cause="their requests failed", fix="pointsman status")
    return ok(name, f"{len(wanted)} known, none older than {STALE:g} s")


def answer_is_from_the_pick(stack: Stack) -> Finding:
    """The proof: who answered is who was picked."""
    name = "the answer comes from the picked Pod"
    if not stack.probes:
        return skipped(name)
    names = {server.address: server.name for server in stack.servers}
    for probe in stack.probes:
        picked = names.get(probe.picked, probe.picked)
        if probe.status != 200:
            told = probe.why or f"status {probe.status}"
            return failed(name, told, cause="a request through the gateway fails", fix=_log(stack, stack.gateway_log))
        if not picked and not stack.metrics:
            return _without(name, "a picker")
        if not picked:
            return failed(
                name, f"{probe.answered} answered", cause="the picker was not asked (fail-open hides it)", fix=_AGAIN
            )
        if picked != probe.answered:
            told = f"{picked} was picked, {probe.answered or 'nobody known'} answered"
            return failed(name, told, cause="Envoy does not follow the pick", fix=_AGAIN)
    return ok(name, f"{len(stack.probes)} of {len(stack.probes)} requests")


def same_prompt_same_pod(stack: Stack) -> Finding:
    """Whether the prefix cache is used: the same prompt goes where it was before."""
    name = "the same prompt goes to the same Pod"
    answered = [probe.answered for probe in stack.probes if probe.status == 200]
    if len(answered) < 2 or not stack.metrics:
        return skipped(name)
    if len(set(answered)) > 1:
        told = " then ".join(answered)
        cause = "no prefix scorer decides, or load outweighs it"
        return warned(name, told, cause=cause, fix=f"curl {stack.metrics}/debug/decisions?last=2")
    return ok(name, f"{answered[0]} each time")


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


def _each(stack: Stack, name: str, complaint: Callable[[Filter], str]) -> Finding:
    filters = stack.gateway.filters if stack.gateway else ()
    if not filters:
        return skipped(name)
    told = [f"listener {one.listener}: {said}" for one in filters if (said := complaint(one))]
    if told:
        return failed(name, "; ".join(told), cause="Envoy's configuration is not the one that we render", fix=_AGAIN)
    return ok(name, f"{len(filters)} of {len(filters)}")


def _sick(stack: Stack, clusters: set[str]) -> str:
    hosts: list[Host] = [
        h for name in clusters for h in (stack.gateway.clusters.get(name, ()) if stack.gateway else ())
    ]
    return "; ".join(f"{host.address}: {host.why}" for host in hosts if not host.healthy)


def _log(stack: Stack, part: str) -> str:
    return f"tail -n 50 {stack.logs}/{part}.log"


def _without(check: str, part: str) -> Finding:
    return skipped(check, f"this stack is without {part}")

"""What really happens: counters before and after, and requests whose answers must come from the Pod that was picked.

Counters can convict and never acquit: while Envoy ignores every pick they are clean. Who answered is the only proof.
"""

from pointsman.core.kinds import key_of
from pointsman.doctor.cluster.case import Case, command
from pointsman.doctor.cluster.facts import Counts
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned


def counters_tell(case: Case) -> Finding:
    """Whether the gateway's own counters of these requests speak against it."""
    name = "the gateway's counters of the probe"
    before, after, sent = case.cluster.before, case.cluster.after, len(case.cluster.probes)
    if before is None or after is None or not sent:
        return skipped(name)
    if not after.asked:
        return _hidden(name, case, before, after)
    more = {key: value - before.asked.get(key, 0) for key, value in after.asked.items()}
    if more.get("failure_mode_allowed"):
        told = f"failure_mode_allowed +{more['failure_mode_allowed']} for {sent} requests"
        cause = "the picker failed and failure_mode_allow let the requests go anywhere: fail-open hides the failure"
        return failed(name, told, cause=cause, fix=_log(case))
    for counter, cause in _GUILTY.items():
        if more.get(counter):
            return failed(name, f"{counter} +{more[counter]} for {sent} requests", cause=cause, fix=_log(case))
    if not more.get("streams_started") and case.path.picker is not None:
        cause = "the filter is off on this route, or not there: nothing fails, and nothing is picked"
        return failed(name, f"streams_started +0 for {sent} requests", cause=cause, fix=_log(case))
    return ok(name, f"streams_started +{more.get('streams_started')}, no complaint (which is no proof)")


_GUILTY = {
    "spurious_msgs_received": (
        "the picker sent what Envoy did not ask for: the modes of the filter are not those that it speaks"
    ),
    "message_timeouts": "the picker did not answer in time: it waits for a body that the modes never send, or hangs",
    "streams_failed": "no stream to the picker came about: wrong port, protocol or TLS, or the picker is dead",
}


def _hidden(name: str, case: Case, before: Counts, after: Counts) -> Finding:
    """Judge by the members' own counts where the gateway shows no others."""
    sent = len(case.cluster.probes)
    cluster = case.path.asked.cluster if case.path.asked else ""
    if cluster not in after.requests:
        return skipped(name, "the gateway hides its ext_proc counters, and has no cluster of the picker to count by")
    asked = after.requests[cluster] - before.requests.get(cluster, 0)
    if asked == 0:
        cause = "the picker was not asked: the filter is off on this route"
        return failed(name, f"no request to {cluster} for {sent} probes", cause=cause, fix=_log(case))
    return ok(
        name,
        f"the gateway hides its ext_proc counters; by its members' counts +{asked} to the picker (which is no proof)",
    )


def answer_is_from_the_pick(case: Case) -> Finding:
    """Whether who answered is who was picked."""
    name = "the answer comes from the picked Pod"
    probes = case.cluster.probes
    if not probes:
        return skipped(name, case.cluster.probes_why or "no request was sent")
    for probe in probes:
        if probe.status != 200:
            return failed(
                name,
                f"{probe.why or f'status {probe.status}'} after {probe.seconds:.2f} s",
                cause=_status(probe.status, probe.seconds),
                fix=command("get", case.path.route, "-o yaml")
                if probe.status == 404 and case.path.route
                else _log(case),
            )
    unasked = [one for one in probes if one.picked == ""]
    if unasked:
        told = f"{len(unasked)} of {len(probes)} requests; {unasked[0].answered or 'somebody'} answered"
        cause = "the picker knows nothing of them: it was not asked, or Envoy gave it up and fail-open hides that"
        return failed(name, told, cause=cause, fix=_log(case))
    wrong = [one for one in probes if one.picked and one.picked != one.answered]
    if wrong:
        told = f"{wrong[0].picked} was picked, {wrong[0].answered or 'nobody that says its name'} answered"
        cause = (
            "Envoy asks the picker and does not follow it: its metadata or the cluster's policy is wrong, or the Pod "
            "refused the request and another one was tried"
        )
        return failed(name, told, cause=cause, fix=_log(case))
    known = [one for one in probes if one.picked]
    if known:
        return ok(name, f"{len(known)} of {len(probes)} requests, {known[0].answered}")
    return _by_chance(name, case)


def _by_chance(name: str, case: Case) -> Finding:
    """Judge without the picks: only a picker sends the same prompt to the same Pod every time."""
    probes = case.cluster.probes
    answered = [one.answered for one in probes]
    pods = max(2, len(case.path.servers))
    why = case.cluster.pick_why or "the picker does not tell its picks"
    if all(answered) and len(set(answered)) == 1 and len(answered) > 3:
        luck = pods ** (len(answered) - 1)
        return ok(name, f"the same prompt went to {answered[0]} {len(answered)} times, by chance 1 in {luck} ({why})")
    spread = ", ".join(f"{one}: {answered.count(one)}" for one in sorted(set(answered)))
    if not case.path.picker:
        return failed(name, spread, cause="no picker is asked: requests are spread", fix=_log(case))
    if len(set(answered)) > 1:
        cause = "the same prompt went to several Pods: the picks are ignored, or the picker goes by load alone"
        return failed(name, f"{spread} ({why})", cause=cause, fix=_log(case))
    return warned(name, f"{spread} ({why})", cause="too few requests to tell", fix="pointsman doctor --probes 6")


def same_prompt_same_pod(case: Case) -> Finding:
    """Whether the prefix cache is used: the same prompt goes where it was before."""
    name = "the same prompt goes to the same Pod"
    answered = [probe.answered for probe in case.cluster.probes if probe.status == 200]
    if len(answered) < 2:
        return skipped(name)
    if any(one.picked is not None and one.picked != one.answered for one in case.cluster.probes):
        return skipped(name, "picks are not followed, so it is not the scheduler that decides")
    if len(set(answered)) > 1:
        cause = "no prefix scorer decides, or load outweighs it"
        return warned(name, " then ".join(answered), cause=cause, fix="pointsman verify prefix-cache")
    return ok(name, f"{answered[0]} each time")


def _status(status: int | None, seconds: float) -> str:
    if status is None:
        return "the gateway does not answer: it hangs on the picker, or cannot be reached from here"
    if status == 504 and seconds < 1:
        return "Envoy gave the picker up after its message_timeout: it waits for a body that the modes never send"
    return {
        404: "no route of the gateway takes this host and path",
        429: "the picker refuses: no endpoint has room",
        500: "the gateway could not ask the picker, and the pool says FailClose",
        503: "nobody behind the route takes the request",
        504: "somebody behind the gateway does not answer in time",
    }.get(status, "the request is refused")


def _log(case: Case) -> str:
    pods = case.path.picker_pods or case.path.gateway_pods
    if not pods:
        return "kubectl get pods -A"
    key = key_of(pods[0])
    return f"kubectl logs -n {key.namespace} {key.name} --all-containers --tail=100"

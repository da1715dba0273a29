"""From facts to the first cause: each fault in a stack that is well is the one that is named."""

from dataclasses import replace
from typing import Any

import pytest

from pointsman.doctor.checks import CHAIN, examine
from pointsman.doctor.envoy import Host, read_clusters, read_filters
from pointsman.doctor.facts import Gateway, Picker, Probe, Seen, Server, Stack
from pointsman.doctor.findings import first_cause
from pointsman.doctor.report import document, exit_code, lines
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.filters import chain
from pointsman.render.envoy.gateway import FailureMode, FilePool
from pointsman.render.envoy.gateway import Gateway as Rendered
from pointsman.render.envoy.pools import ask_router

A, B, PICKER = "127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:9002"


def dump(mode: FailureMode = "FailClose", *, at: str = "static_listeners") -> dict[str, Any]:
    """Return a part of Envoy's config_dump, with the filters that we render."""
    gateway = Rendered(
        listen=Address("127.0.0.1", 80),
        admin=Address("127.0.0.1", 81),
        pickers=(Address("127.0.0.1", 9002),),
        failure_mode=mode,
        pool=FilePool("x"),
    )
    manager = {"name": "hcm", "typed_config": {"http_filters": chain(gateway)}}
    listener = {"listener": {"name": "gateway", "filter_chains": [{"filters": [manager]}]}}
    return {"configs": [{at: [listener if at.startswith("static") else {"active_state": listener}]}]}


def well(mode: FailureMode = "FailClose") -> Stack:
    hosts = (Host(address=A, healthy=True), Host(address=B, healthy=True))
    clusters = {"pickers": (Host(address=PICKER, healthy=True),), "model-servers": hosts}
    return Stack(
        running=True,
        admin="http://127.0.0.1:81",
        metrics="http://127.0.0.1:9090",
        logs="logs",
        servers=(Server(name="a", address=A, state="ready"), Server(name="b", address=B, state="ready")),
        gateway=Gateway(filters=read_filters(dump(mode)), clusters=clusters),
        picker=Picker(health="ok", endpoints=(Seen(address=A, age=0.1), Seen(address=B, age=0.1))),
        probes=(Probe(status=200, answered="a", picked=A),) * 2,
    )


def with_filter(**changes: Any) -> Stack:
    stack = well()
    assert stack.gateway is not None
    (one,) = stack.gateway.filters
    modes = {**one.modes, **changes.pop("modes", {})}
    return replace(stack, gateway=replace(stack.gateway, filters=(replace(one, modes=modes, **changes),)))


def with_hosts(cluster: str, *hosts: Host) -> Stack:
    stack = well()
    assert stack.gateway is not None
    return replace(stack, gateway=replace(stack.gateway, clusters={**stack.gateway.clusters, cluster: hosts}))


def with_picker(**changes: Any) -> Stack:
    stack = well()
    assert stack.picker is not None
    return replace(stack, picker=replace(stack.picker, **changes))


def with_probe(**changes: Any) -> Stack:
    stack = well()
    return replace(stack, probes=(stack.probes[0], replace(stack.probes[1], **changes)))


@pytest.mark.parametrize("mode", ["FailClose", "FailOpen"])
def test_what_we_render_is_well(mode: FailureMode) -> None:
    findings = examine(well(mode))
    assert [finding.verdict for finding in findings] == ["ok"] * len(CHAIN), findings
    assert (first_cause(findings), exit_code(findings)) == (None, 0)
    assert list(lines(findings))[-1] == "all is well"


WELL = well()
FRESH, OLD = Seen(address=A, age=0.1), Seen(address=B, age=9.0)


@pytest.mark.parametrize(
    ("stack", "check", "words"),
    [
        pytest.param(Stack(running=False), "stack runs", "nobody", id="no stack"),
        pytest.param(
            replace(WELL, servers=(Server(name="a", address=A, state="failed"), WELL.servers[1])),
            "model servers run",
            "a is failed",
            id="a server failed",
        ),
        pytest.param(replace(WELL, servers=()), "model servers run", "none", id="no server"),
        pytest.param(replace(WELL, gateway=None), "Envoy answers", "127.0.0.1:81", id="Envoy is down"),
        pytest.param(replace(WELL, picker=None), "the picker serves", "127.0.0.1:9090", id="the picker is down"),
        pytest.param(with_picker(health="no: draining"), "the picker serves", "draining", id="the picker drains"),
        pytest.param(
            with_hosts("pickers", Host(address=PICKER, healthy=False, why="failed_active_health_check")),
            "the picker serves",
            "failed_active_health_check",
            id="gRPC health fails",
        ),
        pytest.param(
            replace(WELL, gateway=replace(WELL.gateway, filters=())),  # type: ignore[type-var]
            "the filter that asks the picker is there",
            "ExternalProcessor",
            id="no filter",
        ),
        pytest.param(with_filter(after=()), "the filter comes before the router", "nothing", id="after the router"),
        pytest.param(
            with_filter(modes={"request_header_mode": "SKIP"}),
            "the filter's modes and metadata are right",
            "request_header_mode is SKIP",
            id="global SKIP",
        ),
        pytest.param(
            with_filter(modes={"request_body_mode": "NONE"}),
            "the filter's modes and metadata are right",
            "request_body_mode is NONE",
            id="no body",
        ),
        pytest.param(
            with_filter(modes={"request_body_mode": "BUFFERED"}),
            "the filter's modes and metadata are right",
            "request_body_mode is BUFFERED",
            id="a buffered body",
        ),
        pytest.param(
            with_filter(receives=()), "the filter's modes and metadata are right", "envoy.lb", id="metadata dropped"
        ),
        pytest.param(
            with_hosts("model-servers", Host(address=A, healthy=True)), "Envoy has the model servers", B, id="a member"
        ),
        pytest.param(
            with_picker(endpoints=(FRESH,)), "the picker's endpoints are fresh", "does not know b", id="unknown"
        ),
        pytest.param(with_picker(endpoints=(FRESH, OLD)), "the picker's endpoints are fresh", "of b", id="stale"),
        pytest.param(
            with_probe(status=503, why="status 503: no"), "the answer comes from the picked Pod", "503", id="refused"
        ),
        pytest.param(
            with_probe(picked=""), "the answer comes from the picked Pod", "a answered", id="fail-open hides it"
        ),
        pytest.param(
            with_probe(answered="b"), "the answer comes from the picked Pod", "a was picked, b answered", id="ignored"
        ),
    ],
)
def test_the_first_cause_is_named(stack: Stack, check: str, words: str) -> None:
    findings = examine(stack)
    cause = first_cause(findings)
    assert cause is not None
    assert (cause.check, cause.verdict) == (check, "failed")
    assert words in cause.evidence
    assert cause.fix
    assert exit_code(findings) == 1
    assert document(findings)["firstCause"] == check
    assert any(line.startswith("first cause: ") and check in line for line in lines(findings))


@pytest.mark.parametrize(
    "stack",
    [
        replace(WELL, probes=(WELL.probes[0], Probe(status=200, answered="b", picked=B))),
        replace(WELL, problems=("the disk is full",)),
        with_picker(endpoints=(FRESH, Seen(address=B, age=0.1, standing="out"))),
    ],
    ids=["another Pod", "a full disk", "ejected"],
)
def test_warnings_alone_have_an_exit_code_of_their_own(stack: Stack) -> None:
    findings = examine(stack)
    assert exit_code(findings) == 3
    cause = first_cause(findings)
    assert cause is not None
    assert cause.verdict == "warning"


def test_parts_that_a_stack_does_not_have_are_not_missed() -> None:
    probes = tuple(Probe(status=200, answered=name) for name in "ab")
    findings = examine(replace(WELL, admin="", metrics="", gateway=None, picker=None, probes=probes))
    assert (first_cause(findings), exit_code(findings)) == (None, 0)
    assert "this stack is without a picker" in [finding.evidence for finding in findings]


def test_servers_for_prefill_are_not_for_envoy() -> None:
    stack = with_hosts("model-servers", Host(address=A, healthy=True))
    assert stack.picker is not None
    picker = replace(stack.picker, endpoints=(FRESH, Seen(address=B, age=0.1, role="prefill")))
    assert first_cause(examine(replace(stack, picker=picker))) is None


@pytest.mark.parametrize("nonsense", [None, [], {}, {"configs": 1}, {"configs": [{"static_listeners": [1, {}]}]}])
def test_what_is_no_dump_has_nothing_in_it(nonsense: Any) -> None:
    assert read_filters(nonsense) == ()
    assert read_clusters(nonsense) == {}


def test_a_body_based_router_is_no_picker() -> None:
    document = dump()
    filters = document["configs"][0]["static_listeners"][0]["listener"]["filter_chains"][0]["filters"][0]
    router = {"name": "ext_proc", "typed_config": ask_router({"cluster_name": "outbound|9004||body-based-router.a"})}
    filters["typed_config"]["http_filters"].insert(0, router)
    assert read_filters(document) == read_filters(dump())


def test_listeners_that_came_later_are_read_as_well() -> None:
    assert read_filters(dump(at="dynamic_listeners")) == read_filters(dump())


def test_members_and_why_they_are_not_healthy() -> None:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 8000}}
    status = {"failed_active_health_check": True, "eds_health_status": "HEALTHY"}
    clusters = {"cluster_statuses": [{"name": "c", "host_statuses": [{"address": address, "health_status": status}]}]}
    assert read_clusters(clusters) == {"c": (Host(address=A, healthy=False, why="failed_active_health_check"),)}

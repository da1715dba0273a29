"""What the gateway does on the route, and what really happens: each is broken on purpose, and the first cause named."""

import pytest
from tests.unit.doctor.breaks import Break, assert_first_cause, pages, probes
from tests.unit.doctor.scene import PICKER_CLUSTER, POOL_CLUSTER, SCHED, eds, listener, live_route, native_filter

FAULTS = [
    pytest.param(
        (pages(listeners=[listener(ext_proc=[native_filter()], router_last=False)]),),
        "the filter comes before the router",
        "followed by nothing",
        "envoyfilters",
        id="filter order",
    ),
    pytest.param(
        (pages(listeners=[listener(ext_proc=[])]),),
        "the gateway has a filter that asks a picker",
        "no ExternalProcessor",
        "envoyfilters",
        id="no filter",
    ),
    pytest.param(
        (pages(routes=[]),),
        "Envoy has the route",
        f"no route {SCHED}.llm.0",
        "kubectl describe httproute",
        id="route gone from Envoy",
    ),
    pytest.param(
        (
            pages(
                listeners=[listener(ext_proc=[{**native_filter(), "disabled": True}])],
                routes=[live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {})],
            ),
        ),
        "the route asks the picker",
        "says nothing about",
        "envoyfilters",
        id="filter off on the route",
    ),
    pytest.param(
        (pages(listeners=[listener(ext_proc=[native_filter(metadata_options={})])]),),
        "Envoy takes the pick",
        "envoy.lb is missing",
        "envoyfilters",
        id="metadata dropped",
    ),
    pytest.param(
        (pages(members={POOL_CLUSTER: [f"10.244.0.{n}:8200" for n in (1, 2, 3)]}),),
        "Envoy reaches the picker",
        "no member",
        "endpointslices",
        id="picker cluster empty",
    ),
    pytest.param(
        (pages(clusters=[eds(PICKER_CLUSTER, http2=True), eds(POOL_CLUSTER)]),),
        "the cluster behind the route follows the pick",
        "no override_host",
        "envoyfilters",
        id="cluster ignores the pick",
    ),
    pytest.param(
        (pages(members={PICKER_CLUSTER: ["10.244.0.9:9002"], POOL_CLUSTER: ["10.244.0.1:8200"]}),),
        "Envoy has the Pods that may be picked",
        "sim-2, sim-3",
        "endpointslices",
        id="members missing",
    ),
    pytest.param(
        (lambda s: setattr(s, "counts", {"streams_started": 4, "failure_mode_allowed": 4}),),
        "the gateway's counters of the probe",
        "failure_mode_allowed +4",
        "kubectl logs",
        id="fail-open hides it all",
    ),
    pytest.param(
        (lambda s: setattr(s, "counts", {"streams_started": 4, "spurious_msgs_received": 4}),),
        "the gateway's counters of the probe",
        "spurious_msgs_received +4",
        "kubectl logs",
        id="spurious messages",
    ),
    pytest.param(
        (lambda s: setattr(s, "counts", {"streams_started": 4, "message_timeouts": 2}),),
        "the gateway's counters of the probe",
        "message_timeouts +2",
        "kubectl logs",
        id="message timeouts",
    ),
    pytest.param(
        (lambda s: setattr(s, "counts", {"streams_started": 0}),),
        "the gateway's counters of the probe",
        "streams_started +0",
        "kubectl logs",
        id="never asked",
    ),
    pytest.param(
        (probes(status=503, why="status 503: no healthy upstream"),),
        "the answer comes from the picked Pod",
        "no healthy upstream",
        "kubectl logs",
        id="request fails",
    ),
    pytest.param(
        (probes(picked="sim-2"),),
        "the answer comes from the picked Pod",
        "sim-2 was picked, sim-1 answered",
        "kubectl logs",
        id="pick ignored",
    ),
    pytest.param(
        (probes(picked=""),),
        "the answer comes from the picked Pod",
        "1 of 2 requests",
        "kubectl logs",
        id="picker not asked",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)

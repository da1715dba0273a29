"""EnvoyFilters that cannot work, the manual for ext_proc among them: each is the first cause named."""

import pytest
from tests.unit.doctor.breaks import (
    MANUAL,
    REPLACE,
    Break,
    Document,
    add,
    as_replaced,
    assert_first_cause,
    by_service,
    change,
    half,
    manual_cluster,
    manual_filter,
    own_route_patch,
    pages,
    patch,
    probes,
    unseen,
)
from tests.unit.doctor.scene import (
    EXT_PROC,
    GATEWAY,
    POOL_CLUSTER,
    SCHED,
    SIM,
    envoyfilter,
    listener,
    live_route,
    native_filter,
    per_route,
)


def aimed_at(labels: Document) -> Document:
    written = envoyfilter(patch("HTTP_FILTER", "INSERT_BEFORE", native_filter()))
    written["spec"]["workloadSelector"] = {"labels": labels}
    return written


def for_sidecars() -> Document:
    written = patch("HTTP_FILTER", "INSERT_BEFORE", native_filter())
    written["match"]["context"] = "SIDECAR_INBOUND"
    return written


FAULTS = [
    pytest.param(
        (by_service, add(aimed_at({"app.kubernetes.io/gateway": "infra-inference"}))),
        "EnvoyFilters reach the gateway",
        f"selects app.kubernetes.io/gateway=infra-inference, which no Pod in {SCHED} has",
        f'"app.kubernetes.io/gateway":null,"gateway.networking.k8s.io/gateway-name":"{GATEWAY}"',
        id="labels with a typo",
    ),
    pytest.param(
        (by_service, add(envoyfilter(for_sidecars()))),
        "EnvoyFilters reach the gateway",
        "patch 0 (HTTP_FILTER) is for SIDECAR_INBOUND",
        '"path":"/spec/configPatches/0/match/context","value":"GATEWAY"',
        id="patch for sidecars",
    ),
    pytest.param(
        (add(envoyfilter(own_route_patch(None), namespace=SIM)),),
        "EnvoyFilters reach the gateway",
        f"EnvoyFilter {SIM}/epp-ext-proc-poc",
        "kubectl create -f -",
        id="EnvoyFilter in the pool's namespace",
    ),
    pytest.param(
        (add(MANUAL), as_replaced),
        "no EnvoyFilter replaces Istio's filter",
        "REPLACE without metadata_options",
        f"kubectl delete envoyfilters.networking.istio.io -n {SCHED} epp-ext-proc-poc",
        id="the manual, with a pool",
    ),
    pytest.param(
        (by_service, add(MANUAL)),
        "no EnvoyFilter replaces Istio's filter",
        "is a REPLACE",
        "kubectl delete envoyfilters",
        id="the manual, with a Service",
    ),
    pytest.param(
        (by_service, add(MANUAL), unseen),
        "no EnvoyFilter replaces Istio's filter",
        "is a REPLACE",
        "kubectl delete envoyfilters",
        id="the manual, with a Service, gateway not seen",
    ),
    pytest.param(
        (add(envoyfilter(REPLACE, manual_cluster("10.96.0.77"))), as_replaced),
        "addresses in EnvoyFilters are live",
        "10.96.0.77:9002, which no Service",
        '"value":"10.96.0.9"',
        id="ClusterIP changed",
    ),
    pytest.param(
        (add(envoyfilter(REPLACE, manual_cluster("EPP_SERVICE_CLUSTER_IP"))), as_replaced),
        "addresses in EnvoyFilters are live",
        "EPP_SERVICE_CLUSTER_IP",
        '"value":"10.96.0.9"',
        id="placeholder left in",
    ),
    pytest.param(
        (
            by_service,
            add(
                envoyfilter(
                    patch(
                        "HTTP_FILTER", "INSERT_BEFORE", {**manual_filter(message_timeout="10s"), "name": "my.ext-proc"}
                    )
                )
            ),
            pages(listeners=[listener(ext_proc=[{**manual_filter(message_timeout="10s"), "name": "my.ext-proc"}])]),
        ),
        "the filter is switched on for the route",
        "request_header_mode SKIP",
        "kubectl delete envoyfilters",
        id="global SKIP",
    ),
    pytest.param(
        (half({"request_header_mode": "SEND", "request_body_mode": "NONE"}), probes(status=504, seconds=0.2)),
        "the picker is shown bodies in full duplex",
        "request_body_mode NONE",
        "FULL_DUPLEX_STREAMED",
        id="body NONE",
    ),
    pytest.param(
        (half({"request_header_mode": "SKIP", "request_body_mode": "BUFFERED"}),),
        "the picker is shown bodies in full duplex",
        "request_body_mode BUFFERED",
        "FULL_DUPLEX_STREAMED",
        id="body BUFFERED, headers skipped",
    ),
    pytest.param(
        (half({"request_header_mode": "SEND", "request_body_mode": "STREAMED"}),),
        "the picker is shown bodies in full duplex",
        "request_body_mode STREAMED",
        "FULL_DUPLEX_STREAMED",
        id="body STREAMED",
    ),
    pytest.param(
        (
            add(envoyfilter(own_route_patch(None))),
            pages(routes=[live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {EXT_PROC: per_route(None)})]),
        ),
        "per-route entries are complete",
        "no processing_mode",
        "FULL_DUPLEX_STREAMED",
        id="partial override",
    ),
    pytest.param(
        (
            change("HTTPRoute", "llm", "spec", "rules", 0, "name", to="chat"),
            add(envoyfilter(own_route_patch(per_route()["overrides"]["processing_mode"]))),
            pages(routes=[live_route("chat", POOL_CLUSTER, {EXT_PROC: per_route()})]),
        ),
        "patches name routes that exist",
        f"route {SCHED}.llm.0; routes of this gateway: chat",
        '"path":"/spec/rules/0/name"',
        id="rule name shifts the route",
    ),
    pytest.param(
        (
            add(envoyfilter(patch("HTTP_FILTER", "INSERT_BEFORE", native_filter(message_timeout="0.2s")))),
            pages(listeners=[listener(ext_proc=[native_filter(message_timeout="0.2s")])]),
        ),
        "the filter waits long enough",
        "message_timeout is 0.2 s",
        '"value":"1000s"',
        id="message timeout 200 ms",
    ),
    pytest.param(
        (pages(rejected="Didn't find a registered implementation for 'x'"),),
        "Envoy accepts its configuration",
        "registered implementation",
        "envoyfilter",
        id="configuration refused",
    ),
]


@pytest.mark.parametrize(("breaks", "check", "evidence", "fix"), FAULTS)
def test_the_first_cause_is_named(breaks: tuple[Break, ...], check: str, evidence: str, fix: str) -> None:
    assert_first_cause(breaks, check, evidence, fix)

"""All checks, in the order of causes, from the cluster itself to the proof."""

from collections.abc import Mapping
from dataclasses import replace

from pointsman.doctor.cluster import asking, definitions, doors, patches, pickers, pools, proof, routing, shadows
from pointsman.doctor.cluster.case import Check, case
from pointsman.doctor.cluster.facts import Cluster
from pointsman.doctor.findings import Finding

PARTS: Mapping[str, tuple[Check, ...]] = {
    "cluster": (
        definitions.api_answers,  # nothing else can be seen without
        definitions.gateway_definitions,  # no Gateway without its definition
        definitions.inference_definitions,  # what follows pools must not be blamed for a definition
        definitions.istio_follows_pools,  # a flag of istiod decides whether pools mean anything
    ),
    "gateway": (
        routing.gateway_is_there,
        routing.gateway_has_a_class,  # whom to ask why it is not programmed
        routing.gateway_is_programmed,
        routing.gateway_runs,
    ),
    "route": (
        routing.route_is_there,
        routing.no_extension_refs,  # the reason why the rule is gone, before its consequences
        routing.route_is_accepted,
        routing.backend_is_there,
        routing.references_are_granted,  # the reason why references are not resolved
        routing.one_pool_per_rule,
        routing.no_cors,  # no condition tells of it
        routing.references_are_resolved,
        routing.no_override_annotation,
        shadows.no_route_is_before,  # no condition tells of it either
    ),
    "pool": (
        pools.selects_pods,
        pools.pods_are_ready,
        pools.ports_are_served,
    ),
    "picker": (
        pickers.picker_is_named,
        pickers.service_is_there,
        pickers.service_has_the_port,
        pickers.port_speaks_http2,
        pickers.account_may,  # the reason why it is not ready
        pickers.picker_follows_this_pool,  # another one
        pickers.picker_runs,
        pickers.target_port_is_served,
        pickers.service_has_endpoints,
        pools.status_is_current,  # says that there is no picker, too
        doors.port_is_open,
        doors.both_speak_tls,
        doors.alpn_is_h2,
        doors.certificate_is_valid,
        doors.health_serves,
    ),
    "filter": (
        asking.envoy_answers,
        patches.filters_are_in_reach,
        patches.addresses_are_live,  # a filter that asks nobody is right in vain
        patches.nothing_is_replaced,
        asking.filter_is_in_order,  # one after the router does nothing, whatever its modes
        patches.the_filter_is_switched_on,
        patches.overrides_are_complete,
        patches.bodies_are_duplex,
        patches.route_names_match,
        patches.timeout_is_long_enough,
        asking.configuration_is_accepted,
        asking.filter_is_there,
        asking.route_is_live,
        asking.route_asks,
        asking.modes_are_right,
        asking.metadata_is_received,
        asking.patience_is_enough,
        asking.picker_cluster_is_right,
        asking.pick_is_followed,
        asking.members_are_the_servers,
    ),
    "proof": (
        proof.counters_tell,
        proof.answer_is_from_the_pick,
        proof.same_prompt_same_pod,  # what scheduling is for
    ),
}


def examine(cluster: Cluster) -> list[Finding]:
    """Return what every check finds, in order."""
    seen = case(cluster)
    return [replace(check(seen), part=part) for part, checks in PARTS.items() for check in checks]

"""Any install in any surroundings: what the schema accepts is rendered, nothing is named twice, and it stands."""

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.fuzz.render.manifests.test_stack_fuzz import algorithms, block, ports, replicas, switches, words
from tests.unit.render.scheduler.installs import HERE, THERE, pool_ref, resource, route

from pointsman.api import SchedulerInstall
from pointsman.operator.findings import Observed
from pointsman.operator.standing import InstallSight, stand
from pointsman.render.manifests.facts import Facts
from pointsman.render.scheduler.install import Surroundings, install

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "60"))

places = st.sampled_from([HERE, THERE, "third"])
names = st.sampled_from(["a", "b", "a-config", "b-pods", "gaie-inference-scheduling-epp"])
ways = st.none() | st.sampled_from(["Native", "EndpointSlice", "RoutePatch", "FilterPatch", "OwnEnvoy"])
reference = block(name=names, namespace=places)
specs = st.fixed_dictionaries(
    {"simulatorNamespace": places},
    optional={
        "schedulerNamespace": st.none() | places,
        "proxyService": block(enabled=switches, name=names, port=ports, targetPort=st.none() | ports),
        "epp": block(
            enabled=switches,
            name=names,
            replicas=replicas,
            port=ports,
            args=words,
            poolNamespace=st.none() | places,
            failureMode=st.sampled_from(["FailOpen", "FailClose"]),
            configProfile=st.sampled_from(["default", "proxy-performance", "proxy-performance-by-backend"]),
        ),
        "gateway": block(
            enabled=switches, name=names, className=st.sampled_from(["istio", "other"]), listenerPort=ports
        ),
        "routing": block(
            enabled=switches,
            backendType=st.sampled_from(["Service", "InferencePool"]),
            inferencePool=reference,
            parentGateway=reference,
            way=ways,
        ),
        "destinationRule": block(enabled=switches, algorithm=algorithms),
        "envoyFilter": block(enabled=switches, name=names),
    },
)
classes = st.frozensets(st.sampled_from(["istio", "other"]))
facts = st.builds(
    Facts,
    inference_pool=switches,
    gateway_api=switches,
    istio=switches,
    gateway_classes=classes,
    istio_classes=classes,
    envoy_filter=switches,
    reference_grant=switches,
)
told = st.sampled_from(
    [{}, {"parents": []}, {"parents": [{"conditions": [{"type": "ResolvedRefs", "status": "False"}]}]}]
)
backends = st.lists(st.sampled_from([pool_ref(), pool_ref("other"), {"kind": "Service", "name": "s"}]), max_size=2)
routes = st.builds(lambda refs, status: route([{"backendRefs": refs}], **status), backends, told)
slices = st.sampled_from(
    [(), ({"addressType": "IPv4"},), ({"addressType": "IPv6", "endpoints": [{"addresses": ["::1"]}]},)]
)
around = st.builds(
    Surroundings,
    facts=facts,
    route=st.none() | routes,
    probe=st.none() | routes,
    others=st.lists(routes, max_size=2).map(tuple),
    slices=slices,
    pool=st.none() | st.just({"metadata": {"name": "p"}, "spec": {}}),
)


def accepted(spec: dict[str, Any]) -> SchedulerInstall:
    try:
        return resource(**spec)
    except ValidationError:  # what the schema refuses is for others to test
        reject()


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(spec=specs, surroundings=around)
def test_fuzz_what_is_accepted_is_rendered_once_and_stands_somehow(
    spec: dict[str, Any], surroundings: Surroundings
) -> None:
    made = install(accepted(spec), surroundings)
    called = Counter((one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in made.objects)
    assert [name for name, count in called.items() if count > 1] == []
    types = Counter(one.type for one in made.notices)
    types.update(one.condition for one in made.components)
    assert [name for name, count in types.items() if count > 1] == []
    seen = InstallSight(parts=Observed(deployments={}, gateways={}, pods=[]), route=surroundings.route, slices=())
    standing = stand(made, seen)
    assert standing.conditions[0].type == "Ready"
    assert standing.conditions[0].status == "False"  # nothing is there

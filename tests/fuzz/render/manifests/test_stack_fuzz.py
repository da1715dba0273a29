"""Any resource on any cluster: what the schema accepts is rendered, and the parts of it fit together."""

import os
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.unit.render.bootstraps import is_bootstrap
from tests.unit.render.invariants import INVARIANTS
from tests.unit.render.manifests.test_picker import configured
from tests.unit.render.manifests.test_proxy import bootstraps
from tests.unit.render.stacks import resource

from pointsman.api import SimulatorDeployment
from pointsman.core.errors import UserError
from pointsman.operator.findings import Observed, look
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.stack import stack

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "60"))

switches = st.booleans()
ports = st.sampled_from([1, 80, 8080, 8100, 8200, 8300, 9002, 9003, 9090, 19000, 65535])
replicas = st.integers(0, 4)
verbosity = st.none() | st.integers(0, 10)
names = st.sampled_from(["mine", "gaie-inference-scheduling-proxy", "gaie-sim-epp", "infra-sim-inference-gateway", "x"])
amounts = st.none() | st.fixed_dictionaries(
    {}, optional={"limits": st.just({"cpu": "2"}), "requests": st.just({"cpu": 1}), "claims": st.just([{"name": "g"}])}
)
words = st.lists(st.sampled_from(["--v", "9", "--x=y"]), max_size=2)


def block(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a block that may be absent, null, or have any of the fields."""
    return st.none() | st.fixed_dictionaries({}, optional=fields)


instances = block(enabled=switches, replicas=replicas, port=ports, resources=amounts, image=st.just("a:1"))
stages = block(enabled=switches, replicas=replicas, port=ports, logVerbosity=verbosity, resources=amounts, args=words)
algorithms = st.sampled_from(["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "LEAST_CONN"])
limits = block(http1MaxPendingRequests=st.integers(0, 9), maxRequestsPerConnection=st.integers(0, 9))
specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": replicas,
        "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
        "logVerbosity": verbosity,
        "nameSuffix": st.sampled_from(["", "-b", "-istio", "-pods", "-decode"]),
        "resources": amounts,
        "service": block(name=names, port=ports, type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"])),
        "gateway": block(enabled=switches, className=st.sampled_from(["istio", "other"]), routeName=names),
        "loadBalancing": block(enabled=switches, algorithm=algorithms, connectionPool=limits),
        "epp": block(enabled=switches, replicas=replicas, port=ports, verbosity=verbosity, args=words),
        "inferenceGateway": block(enabled=switches, standard=instances, istio=instances),
        "prefill": stages,
        "decode": stages,
    },
)
facts = st.builds(
    Facts,
    inference_pool=switches,
    gateway_api=switches,
    istio=switches,
    gateway_classes=st.frozensets(st.sampled_from(["istio", "other"])),
    sleep_action=switches,
    openshift=switches,
)


def accepted(spec: dict[str, Any]) -> SimulatorDeployment:
    try:
        return resource(**spec)
    except UserError:  # what the schema refuses is for others to test
        reject()


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs, cluster=facts)
def test_fuzz_what_is_accepted_is_rendered_and_fits_together(spec: dict[str, Any], cluster: Facts) -> None:
    made = stack(accepted(spec), cluster)
    for invariant in INVARIANTS:
        invariant(made)
    assert all(is_bootstrap(document) for document in bootstraps(made).values())
    if spec.get("epp") and spec["epp"].get("enabled"):
        assert configured(made.objects).scheduler is not None
    nothing = look(made, Observed(deployments={}, gateways={}, pods=()))
    assert not nothing.ready

"""Stacks for the tests of rendering: every sample, and every mode that a resource can be in, each on such a cluster.

Each case has a file in `golden/` with exactly what is rendered for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.api import SimulatorDeployment, parse, read
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.stack import Stack, stack

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "config" / "samples"

BARE = Facts()
POOL = Facts(inference_pool=True)
GATEWAY_API = Facts(gateway_api=True)
ISTIO = Facts(gateway_api=True, istio=True, gateway_classes=frozenset({"istio"}))
MESH = Facts(inference_pool=True, gateway_api=True, istio=True, gateway_classes=frozenset({"istio"}))
OLD = Facts(sleep_action=False, openshift=True, domain="example.internal")

ON: dict[str, Any] = {"enabled": True}
STANDARD = {"inferenceGateway": ON | {"standard": ON}}
ISTIO_ONLY = {"inferenceGateway": ON | {"istio": ON}}
STAGES = {"prefill": ON, "decode": ON}
EVERYTHING: dict[str, Any] = {
    "epp": ON,
    "inferenceGateway": ON | {"standard": ON, "istio": ON},
    "loadBalancing": ON,
    **STAGES,
}
ALGORITHMS = ("ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "LEAST_CONN")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A resource, and the cluster it is for."""

    name: str
    resource: SimulatorDeployment
    facts: Facts

    def render(self) -> Stack:
        return stack(self.resource, self.facts)


def resource(stack_name: str = "llm-sim", /, **spec: Any) -> SimulatorDeployment:
    """Return a resource in the namespace of the samples."""
    document = {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": stack_name, "namespace": "llm-d-sim"},
        "spec": spec,
    }
    return parse(document, source=stack_name)


def rendered(facts: Facts = BARE, /, **spec: Any) -> Stack:
    """Return the stack of a resource with this spec."""
    return stack(resource(**spec), facts)


def find(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """Return the one object of a kind, or the one that has the name."""
    (only,) = (one for one in of_kind(objects, kind) if not name or one["metadata"]["name"] == name)
    return only


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    """Return the objects of these kinds."""
    return [one for one in objects if one["kind"] in kinds]


def named(objects: Iterable[Object]) -> list[str]:
    """Return what there is, as kubectl writes it."""
    return [f"{one['kind']}/{one['metadata']['name']}" for one in objects]


def container(deployment: Object) -> Object:
    """Return the only container of a Deployment's Pods."""
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Object = only
    return found


def pod_labels(deployment: Object) -> dict[str, str]:
    """Return the labels of a Deployment's Pods."""
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


def selects(selector: dict[str, str], deployment: Object) -> bool:
    """Tell whether a selector selects a Deployment's Pods."""
    return selector.items() <= pod_labels(deployment).items()


def _case(name: str, facts: Facts = BARE, /, **spec: Any) -> Case:
    return Case(name=name, resource=resource(**spec), facts=facts)


def _sample(name: str, facts: Facts, cluster: str = "") -> Case:
    path = SAMPLES / f"sim_v1alpha1_simulatordeployment_{name}.yaml"
    return Case(name=f"sample-{name.replace('_', '-')}{cluster}", resource=read(path), facts=facts)


_AMOUNTS = {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}
_LEGACY_GATEWAY = {"gateway": ON}

CASES: tuple[Case, ...] = (
    _sample("minimal", BARE),
    _sample("prefill_decode", BARE),
    _sample("istio", BARE),
    _sample("istio", MESH, "-on-istio"),
    _sample("full", BARE),
    _sample("full", MESH, "-on-istio"),
    _case("legacy"),
    _case("legacy-zero-replicas", replicas=0),
    _case("prefill-only", prefill=ON),
    _case("decode-only", decode=ON | {"port": 8300}, service={"port": 80, "type": "NodePort"}),
    _case("stages-zero-replicas", prefill=ON | {"replicas": 0}, decode=ON | {"replicas": 0}),
    _case("epp", epp=ON),
    _case("epp-with-pool", POOL, epp=ON),
    _case("epp-prefill-only", POOL, epp=ON, prefill=ON),
    _case("epp-both-stages", epp=ON, **STAGES),
    _case("epp-two-replicas", POOL, epp=ON | {"replicas": 2, "port": 9002}),
    _case("standard-gateway", **STANDARD),
    _case("standard-gateway-with-epp", epp=ON, **STANDARD),
    _case("istio-gateway-without-istio", **ISTIO_ONLY),
    _case("istio-gateway-without-class", GATEWAY_API, **ISTIO_ONLY),
    _case("istio-gateway-with-istio", ISTIO, **ISTIO_ONLY),
    _case("istio-gateway-with-istio-and-pool", MESH, epp=ON, **ISTIO_ONLY),
    _case("no-gateway-enabled", inferenceGateway=ON),
    *(_case(f"balancing-{one.lower()}", ISTIO, loadBalancing=ON | {"algorithm": one}) for one in ALGORITHMS),
    _case("balancing-with-limits", ISTIO, loadBalancing=ON | {"connectionPool": {"maxRequestsPerConnection": 3}}),
    _case("balancing-by-the-gateway", loadBalancing=ON | {"algorithm": "RANDOM", "connectionPool": {}}, **STANDARD),
    _case("balancing-by-nobody", loadBalancing=ON),
    _case("legacy-gateway-without-gateway-api", **_LEGACY_GATEWAY),
    _case("legacy-gateway-without-class", GATEWAY_API, **_LEGACY_GATEWAY),
    _case("legacy-gateway", ISTIO, gateway=ON | {"routeName": "old-route"}),
    _case("legacy-gateway-with-pool", MESH, epp=ON, **_LEGACY_GATEWAY),
    _case("legacy-gateway-superseded", MESH, epp=ON, **_LEGACY_GATEWAY, **ISTIO_ONLY),
    _case("suffix", MESH, nameSuffix="-b", **_LEGACY_GATEWAY, **EVERYTHING),
    _case("old-openshift", OLD, epp=ON, **STANDARD),
    _case(
        "every-field",
        POOL,
        image="registry.example/sim:1",
        imagePullPolicy="Always",
        logVerbosity=0,
        service={"name": "front", "port": 8000, "type": "LoadBalancer"},
        resources=_AMOUNTS,
        epp=ON | {"image": "registry.example/epp:1", "verbosity": 4, "args": ["--refresh-metrics-interval", "1s"]},
        decode=ON | {"args": ["--max-loras", "2"], "logVerbosity": 3, "image": "registry.example/decode:1"},
        prefill=ON | {"resources": {"claims": [{"name": "gpu", "request": "one"}]}},
        inferenceGateway=ON | {"standard": ON | {"port": 80, "resources": _AMOUNTS, "image": "registry.example/e:1"}},
    ),
)

"""The picker of an install: account, configuration, Deployment and Service in the scheduler's namespace, its rights and
its pool where the model servers are.

A pool can only name a picker of its own namespace. Where the picker is in another, a Service without a selector stands
for it there, and its endpoints are those of the picker's own Service, as the cluster itself counts them (`mirror`).
"""

from collections.abc import Iterable

from pointsman.api.scheduler import SchedulerPicker, SchedulerSpec
from pointsman.api.simulator import PICKER_PORTS
from pointsman.core import flags
from pointsman.core.documents import to_yaml
from pointsman.render.manifests import network, objects, picker
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import COMPONENT, NAME
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.picker import PickerShape
from pointsman.render.manifests.policy import Policy
from pointsman.render.scheduler.places import GATEWAY_COMPONENT, Places
from pointsman.render.scheduler.profiles import configuration

KEY = "epp-config.yaml"
FOLDER = "/etc/epp"
SLICE_MANAGER = "endpointslice.kubernetes.io/managed-by"
SLICE_SERVICE = "kubernetes.io/service-name"
_PORT = "grpc-ext-proc"
# A picker that hangs is to lose its place soon: it is what costs requests, and not the moment without it.
_SOON = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2}


def render(
    spec: SchedulerSpec, config: SchedulerPicker, *, places: Places, facts: Facts, policy: Policy, pooled: bool
) -> list[Object]:
    """Return the picker's objects; it follows the pool when it is `pooled`, else Pods by their labels."""
    here, data = places.here, {KEY: to_yaml(configuration(config.config_profile, image=config.image))}
    shape = PickerShape(
        name=places.picker,
        labels=places.picker_labels,
        selector=places.picker_selector,
        settings=f"{places.picker}-config",
        folder=FOLDER,
        pull=spec.image_pull_policy,
        readiness=_SOON,
    )
    found_by = picker.discovery(
        (places.pool, places.pools.namespace) if pooled else None, places.selector, places.target
    )
    if not pooled:
        found_by += ["--pool-namespace", places.pools.namespace]
    arguments = picker.built_in(config, [*found_by, "--health-checking"], file=f"{FOLDER}/{KEY}", policy=policy)
    lease = f"epp-{places.pools.namespace}-{places.pool if pooled else places.picker}" if config.replicas > 1 else ""
    rules = picker.permissions(pool=pooled, lease=lease)
    wall = network.picker_policy(
        head=objects.head("NetworkPolicy", shape.name, names=here, labels=shape.labels, api="networking.k8s.io/v1"),
        pods=shape.selector,
        gateways={COMPONENT: GATEWAY_COMPONENT, NAME: here.stack},
        facts=facts,
        policy=policy,
    )
    return [
        picker.account(shape, names=here),
        *picker.role(shape, rules, names=places.pools, home=here.namespace),
        objects.config_map(shape.settings, names=here, labels=shape.labels, data=data),
        *([wall] if policy.network_policies else []),
        picker.service(config, shape, names=here),
        picker.deployment(config, shape, arguments, data=data, names=here, facts=facts),
    ]


def checks_health(config: SchedulerPicker) -> bool:
    """Tell whether the picker says on its own port how it is: it does, unless its arguments say otherwise."""
    return flags.switch(config.args, "health-checking", default=True)


def mirror(config: SchedulerPicker, slices: Iterable[Object], *, places: Places) -> list[Object]:
    """Return the Service that stands for the picker in the pool's namespace, and its endpoints.

    `slices` are those of the picker's own Service; a family of addresses that none of them has gets none here.
    """
    names, grpc = places.pools, PICKER_PORTS["grpc"]
    ports = [objects.port(_PORT, config.port, grpc, protocol="http2")]
    front = objects.service(places.picker, names=names, labels={}, selector={}, ports=ports)
    del front["spec"]["selector"]
    families: dict[str, list[Object]] = {}
    for one in slices:
        families.setdefault(one["addressType"], []).extend(_endpoint(each) for each in one.get("endpoints") or ())
    return [front, *(_slice(family, found, places=places) for family, found in sorted(families.items()))]


def _endpoint(found: Object) -> Object:
    told = found.get("conditions", {})
    conditions = {name: told[name] for name in ("ready", "serving", "terminating") if name in told}
    return {"addresses": list(found["addresses"]), "conditions": conditions}


def _slice(family: str, found: list[Object], *, places: Places) -> Object:
    name, names = f"{places.picker}-{family.lower()}", places.pools
    labels = {SLICE_SERVICE: places.picker, SLICE_MANAGER: "pointsman-operator"}
    port = {"name": _PORT, "port": PICKER_PORTS["grpc"], "protocol": "TCP", "appProtocol": "http2"}
    return {
        **objects.head("EndpointSlice", name, names=names, labels=labels, api="discovery.k8s.io/v1"),
        "addressType": family,
        "ports": [port],
        "endpoints": sorted(found, key=lambda one: one["addresses"]),
    }

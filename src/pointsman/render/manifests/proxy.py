"""A gateway of a stack that is an Envoy with our own configuration.

The same for `standard` and for `istio` where there is no Istio: whichever image, it is Envoy that runs in it, started
by its path. Port 80 needs no privilege because the Pod's own network says so. The admin stays inside the Pod (19001);
19000, which probes know, answers `/ready` and statistics. Before it stops, Envoy is told to drain, so that
connections end between two requests and not within one.
"""

from collections.abc import Mapping

from pointsman.api.base import PullPolicy, Resources
from pointsman.api.simulator import PICKER_PORTS, GatewayInstance, LoadBalancing, PickerConfig, SimulatorDeployment
from pointsman.core.documents import to_yaml
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.gateway import Algorithm, FilePool, Gateway, ServicePool
from pointsman.render.manifests import objects, picker
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import COMPONENT, GATEWAY_TYPE, NAME, Names
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.simulators import Group

CONFIG_KEY = "envoy.yaml"
IMAGES = {
    "standard": "cr.kgateway.dev/kgateway-dev/envoy-wrapper:v2.1.1",
    "istio": "docker.io/istio/proxyv2:1.28.1",
}
LISTEN, READY, ADMIN = 80, 19_000, 19_001
_DRAIN = 10
_GRACE = 60
_ALGORITHMS: Mapping[str, Algorithm] = {
    "ROUND_ROBIN": "ROUND_ROBIN",
    "LEAST_REQUEST": "LEAST_REQUEST",
    "LEAST_CONN": "LEAST_REQUEST",
    "RANDOM": "RANDOM",
}
# bash speaks to the admin itself: images with Envoy have it, and few have curl.
_FAREWELL = (
    f"exec 3<>/dev/tcp/127.0.0.1/{ADMIN}; "
    "printf 'POST /drain_listeners?graceful&skip_exit HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 0\\r\\n\\r\\n' >&3; "
    f"sleep {_DRAIN}"
)


def render(
    wanted: Gateway,
    instance: GatewayInstance,
    *,
    pull: PullPolicy,
    kind: str,
    name: str,
    names: Names,
    facts: Facts,
    component: str = "gateway",
) -> list[Object]:
    """Return the ConfigMap, Service and Deployment of one gateway."""
    labels = {COMPONENT: component, "component": "gateway", GATEWAY_TYPE: kind}
    selector = {COMPONENT: component, GATEWAY_TYPE: kind, NAME: names.stack}
    data = settings(wanted)
    image = instance.image or IMAGES[kind]
    pod = envoy_pod(name, image=image, pull=pull, resources=instance.resources, facts=facts)
    ports = [objects.port("http", instance.port, LISTEN, protocol="http")]
    return [
        objects.config_map(name, names=names, labels=labels, data=data),
        objects.service(name, names=names, labels=labels, selector=selector, ports=ports),
        objects.deployment(
            name,
            names=names,
            labels=labels,
            selector=selector,
            replicas=instance.replicas,
            pod=pod,
            checksum=objects.digest(data),
        ),
    ]


def settings(gateway: Gateway) -> dict[str, str]:
    """Return the data of the ConfigMap from which an Envoy reads what it does."""
    return {CONFIG_KEY: to_yaml(bootstrap(gateway))}


def envoy_pod(config: str, *, image: str, pull: PullPolicy, resources: Resources | None, facts: Facts) -> Object:
    """Return the spec of an Envoy's Pods, which read the ConfigMap `config`."""
    container = _container(image, resources, policy=pull)
    volume, mount = objects.mounted(config, path="/etc/envoy")
    pod = objects.pod({**container, "volumeMounts": [mount]}, facts=facts, grace=_GRACE, volumes=[volume])
    pod["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    return pod


def envoy(resource: SimulatorDeployment, serving: Group, *, names: Names, facts: Facts) -> Gateway:
    """Return what the gateway's Envoy does: ask the picker if there is one, and obey."""
    spec = resource.spec
    where = f"{names.namespace}.svc.{facts.domain}"
    config = spec.epp if spec.epp and spec.epp.enabled else PickerConfig()
    tls = picker.serves_tls(config)
    return Gateway(
        listen=Address("0.0.0.0", LISTEN),  # noqa: S104 - a Pod serves on all its addresses
        admin=Address("127.0.0.1", ADMIN),
        ready=Address("0.0.0.0", READY),  # noqa: S104 - kubelet asks the Pod's address
        pickers=(Address(f"{names.picker}.{where}", PICKER_PORTS["grpc"]),) if config.enabled else (),
        picker_tls=tls,
        # Envoy speaks TLS to all ports of a picker or to none, and the one for health is plaintext.
        picker_health_port=None if tls else PICKER_PORTS["health"],
        pool=FilePool(facts.endpoints_file)
        if facts.endpoints_file
        else pool(spec.load_balancing, Address(f"{serving.pods}.{where}", serving.port)),
        failure_mode=config.failure_mode,
    )


def pool(balancing: LoadBalancing | None, service: Address) -> ServicePool:
    """Return the model servers behind a headless Service, spread as the resource says when nobody picks."""
    if balancing is None or not balancing.enabled:
        return ServicePool(service=service)
    limits = balancing.connection_pool
    return ServicePool(
        service=service,
        algorithm=_ALGORITHMS[balancing.algorithm],
        pending_requests=limits.http1_max_pending_requests if limits else None,
        requests_per_connection=limits.max_requests_per_connection if limits else None,
    )


def _container(image: str, resources: Resources | None, *, policy: PullPolicy) -> Object:
    return {
        "name": "envoy",
        "image": image,
        "imagePullPolicy": policy,
        "command": ["/usr/local/bin/envoy"],
        "args": [
            *("--config-path", f"/etc/envoy/{CONFIG_KEY}"),
            "--disable-hot-restart",
            *("--service-node", "$(POD_NAME).$(POD_NAMESPACE)"),
            *("--concurrency", "2"),
            *("--log-level", "warning"),
            *("--component-log-level", "connection:warning,http:warning,upstream:warning,ext_proc:error"),
            *("--drain-time-s", str(_DRAIN), "--drain-strategy", "immediate"),
        ],
        "env": objects.identity(),
        "ports": [
            {"name": "http", "containerPort": LISTEN, "protocol": "TCP"},
            {"name": "ready", "containerPort": READY, "protocol": "TCP"},
        ],
        "startupProbe": objects.http_probe("/ready", READY, periodSeconds=1, timeoutSeconds=2, failureThreshold=60),
        "readinessProbe": objects.http_probe("/ready", READY, periodSeconds=5, timeoutSeconds=2, failureThreshold=2),
        # Not /ready, which says no while Envoy drains.
        "livenessProbe": objects.tcp_probe(READY, periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/bash", "-c", _FAREWELL]}}},
        **objects.resources(resources),
    }

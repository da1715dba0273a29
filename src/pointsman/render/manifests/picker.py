"""The picker of a stack: its account with the least that it needs, its configuration, Deployment, Service and pool.

The container listens on 9002 (ext_proc), 9003 (health) and 9090 (metrics); the Service has the resource's port and
9002, both leading to 9002. The flags are the Go picker's, so that its image works as ours does. With an InferencePool
definition on the cluster the picker follows a pool of its own; without, the same Pods by their labels.

Its token is mounted into its own container only, and may do what the picker does and no more: a test compares the Role
with what a picker asks of a real API server. Metrics are for those whom the API server lets read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pointsman.api.base import PullPolicy
from pointsman.api.simulator import PICKER_PORTS, PickerConfig, SimulatorDeployment
from pointsman.core import flags
from pointsman.core.documents import to_yaml
from pointsman.render.manifests import network, objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import COMPONENT, NAME, SERVING, Names
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.simulators import Group

CONFIG_KEY = "default-plugins.yaml"
POOL_GROUP = "inference.networking.k8s.io"
# Where the picker finds objectives and rewrites, in whichever group the cluster has them.
_READ = {
    POOL_GROUP: ("inferencepools",),
    "inference.networking.x-k8s.io": ("inferenceobjectives", "inferencemodelrewrites"),
    "llm-d.ai": ("inferenceobjectives", "inferencemodelrewrites"),
}
_LABELS = {COMPONENT: "epp", "component": "epp"}
_GRACE = 130
# What it holds of requests under way is bounded by a budget of its own (384 MiB), with its indexes beside that.
_MEMORY = ("256Mi", "1Gi")
# An election's lease is named after the pool, or after the Deployment: ours and today's Go picker's, and v0.4's.
_LEASES = ("llm-d.ai", "gateway-api-inference-extension.sigs.k8s.io")
_WEIGHTS = {"load-aware-scorer": 1, "prefix-cache-scorer": 2, "kv-cache-utilization-scorer": 1}


@dataclass(frozen=True, kw_only=True)
class PickerShape:
    """What a picker's objects are called and carry, beside its settings."""

    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    settings: str
    """The ConfigMap with its configuration, and …"""
    folder: str
    """… where its container has it."""
    pull: PullPolicy
    readiness: Mapping[str, int] = field(default_factory=lambda: {"periodSeconds": 2, "failureThreshold": 3})


def render(
    resource: SimulatorDeployment,
    config: PickerConfig,
    groups: Sequence[Group],
    *,
    names: Names,
    facts: Facts,
    policy: Policy,
) -> list[Object]:
    """Return the picker's objects in the order in which they are needed."""
    data = {CONFIG_KEY: to_yaml(configuration(groups))}
    shape = PickerShape(
        name=names.picker,
        labels=_LABELS,
        selector={COMPONENT: "epp", NAME: names.stack},
        settings=names.picker,
        folder="/config",
        pull=resource.spec.image_pull_policy,
    )
    group = f"epp-{names.namespace}-{names.pool if facts.inference_pool else names.picker}"
    members = _members(groups, names=names)
    where = (names.pool, names.namespace) if facts.inference_pool else None
    arguments = built_in(
        config,
        discovery(where, members, groups[0].port),
        file=f"/config/{CONFIG_KEY}",
        policy=policy,
    )
    pools = (
        [pool(config, members, groups[0].port, name=names.pool, picker=names.picker, names=names)]
        if facts.inference_pool
        else []
    )
    wall = network.picker_policy(
        head=objects.head("NetworkPolicy", names.picker, names=names, labels=_LABELS, api="networking.k8s.io/v1"),
        pods=shape.selector,
        gateways={COMPONENT: "gateway", NAME: names.stack},
        facts=facts,
        policy=policy,
    )
    rules = permissions(pool=facts.inference_pool, lease=group if config.replicas > 1 else "")
    return [
        account(shape, names=names),
        *role(shape, rules, names=names, home=names.namespace),
        objects.config_map(shape.settings, names=names, labels=_LABELS, data=data),
        *([wall] if policy.network_policies else []),
        service(config, shape, names=names),
        *pools,
        deployment(config, shape, arguments, data=data, names=names, facts=facts),
    ]


def account(shape: PickerShape, *, names: Names) -> Object:
    """Return the account; its token is mounted by the Pod, where it is needed, and nowhere else."""
    head = objects.head("ServiceAccount", shape.name, names=names, labels=shape.labels)
    return {**head, "automountServiceAccountToken": False}


def deployment(
    config: PickerConfig,
    shape: PickerShape,
    arguments: Sequence[str],
    *,
    data: Mapping[str, str],
    names: Names,
    facts: Facts,
) -> Object:
    """Return the Deployment, which rolls when the configuration changes."""
    return objects.deployment(
        shape.name,
        names=names,
        labels=shape.labels,
        selector=shape.selector,
        replicas=config.replicas,
        pod=_pod(config, shape, arguments, facts=facts),
        checksum=objects.digest(data),
        # Of several only the leader is ever ready: waiting for the others would be waiting for ever.
        rolling={"maxSurge": "100%", "maxUnavailable": "100%"} if config.replicas > 1 else None,
    )


def serves_tls(config: PickerConfig) -> bool:
    """Tell whether the picker expects TLS: only when its arguments say so."""
    return flags.switch(config.args, "secure-serving", default=False)


def configuration(groups: Sequence[Group]) -> Object:
    """Return the EndpointPickerConfig: llm-d's default, or the disaggregated one when there are two stages.

    Written in the names that the Go picker of the default image knows; newer ones take them with a warning.
    """
    if {group.role for group in groups} >= {"prefill", "decode"}:
        handlers = ["prefill-header-handler", "pd-profile-handler", "prefill-filter", "decode-filter"]
        profiles = [_profile(stage, f"{stage}-filter") for stage in ("prefill", "decode")]
    else:
        # A stack of prefill alone has no decoder to keep to.
        narrow = ["decode-filter"] if groups[0].role == "decode" else []
        handlers, profiles = ["single-profile-handler", *narrow], [_profile("default", *narrow)]
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": kind} for kind in (*handlers, *_WEIGHTS, "max-score-picker")],
        "schedulingProfiles": profiles,
    }


def _profile(name: str, *filters: str) -> Object:
    scorers = [{"pluginRef": scorer, "weight": weight} for scorer, weight in _WEIGHTS.items()]
    plain = [{"pluginRef": plugin} for plugin in (*filters, "max-score-picker")]
    return {"name": name, "plugins": [*plain, *scorers]}


def permissions(*, pool: bool, lease: str) -> list[Object]:
    """Return what a picker may do where its Pods are; `lease` is what an election of several is named after."""
    follow = ["list", "watch"]
    rules: list[Object] = [{"apiGroups": [""], "resources": ["pods"], "verbs": follow}]
    if pool:
        rules += [{"apiGroups": [group], "resources": list(kinds), "verbs": follow} for group, kinds in _READ.items()]
    if lease:
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        rules.append({**leases, "verbs": ["create"]})  # which no name can narrow: there is none yet
        rules.append({**leases, "verbs": ["get", "update"], "resourceNames": [f"{lease}.{end}" for end in _LEASES]})
    return rules


def role(shape: PickerShape, rules: Sequence[Object], *, names: Names, home: str) -> list[Object]:
    """Return a Role and its binding to the account, whose home is another namespace, perhaps."""
    api = "rbac.authorization.k8s.io/v1"
    made = {
        **objects.head("Role", shape.name, names=names, labels=shape.labels, api=api),
        "rules": list(rules),
    }
    binding = {
        **objects.head("RoleBinding", shape.name, names=names, labels=shape.labels, api=api),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": shape.name},
        "subjects": [{"kind": "ServiceAccount", "name": shape.name, "namespace": home}],
    }
    return [made, binding]


def service(config: PickerConfig, shape: PickerShape, *, names: Names) -> Object:
    """Return the Service: the resource's port and 9002, both leading to 9002, health and metrics."""
    grpc = PICKER_PORTS["grpc"]
    front = [] if config.port == grpc else [objects.port("grpc", config.port, grpc, protocol="http2")]
    return objects.service(
        shape.name,
        names=names,
        labels=shape.labels,
        selector=shape.selector,
        ports=[
            *front,
            objects.port("grpc-ext-proc", grpc, grpc, protocol="http2"),
            objects.port("grpc-health", PICKER_PORTS["health"], PICKER_PORTS["health"], protocol="http2"),
            objects.port("http-metrics", PICKER_PORTS["metrics"], PICKER_PORTS["metrics"], protocol="http"),
        ],
    )


def _members(groups: Sequence[Group], *, names: Names) -> dict[str, str]:
    """Return the labels of every simulator that the picker has to know."""
    return {SERVING: "true", NAME: names.stack} if len(groups) > 1 else groups[0].selector(names)


def pool(
    config: PickerConfig, members: Mapping[str, str], number: int, *, name: str, picker: str, names: Names
) -> Object:
    """Return the pool of the Pods with these labels, for which a picker's Service in its namespace decides."""
    head = objects.head("InferencePool", name, names=names, labels={}, api=f"{POOL_GROUP}/v1")
    asked = {"name": picker, "port": {"number": config.port}, "failureMode": config.failure_mode}
    return {
        **head,
        "spec": {
            "selector": {"matchLabels": dict(members)},
            "targetPorts": [{"number": number}],
            "endpointPickerRef": asked,
        },
    }


def _pod(config: PickerConfig, shape: PickerShape, arguments: Sequence[str], *, facts: Facts) -> Object:
    health = PICKER_PORTS["health"]
    volume, mount = objects.mounted(shape.settings, path=shape.folder)
    token, access = objects.api_access()
    container = {
        "name": "epp",
        "image": config.image,
        "imagePullPolicy": shape.pull,
        "args": [*arguments, *config.args],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            *objects.identity(),
            {"name": "POINTSMAN_COMMAND", "value": "epp"},
        ],
        "ports": [
            {"name": name if name != "health" else "grpc-health", "containerPort": number, "protocol": "TCP"}
            for name, number in PICKER_PORTS.items()
        ],
        # A connection says that the process lives; only its own word says that it knows the Pods.
        "livenessProbe": objects.tcp_probe(health, initialDelaySeconds=5, periodSeconds=10, failureThreshold=3),
        "readinessProbe": {"grpc": {"port": health, "service": "readiness"}, **shape.readiness},
        "volumeMounts": [mount, access],
        **objects.resources(config.resources, memory=_MEMORY),
    }
    return objects.pod(container, facts=facts, grace=_GRACE, volumes=[volume, token], serviceAccountName=shape.name)


def discovery(pool: tuple[str, str] | None, members: Mapping[str, str], number: int) -> list[str]:
    """Return the flags by which a picker finds Pods: a pool by name and namespace, or else their labels and port."""
    if pool is not None:
        return ["--pool-name", pool[0], "--pool-namespace", pool[1], "--pool-group", POOL_GROUP]
    selector = ",".join(f"{name}={value}" for name, value in members.items())
    return ["--endpoint-selector", selector, "--endpoint-target-ports", str(number)]


def built_in(config: PickerConfig, found_by: Sequence[str], *, file: str, policy: Policy) -> list[str]:
    """Return the built-in flags of a picker."""
    leads = ["--ha-enable-leader-election"] if config.replicas > 1 else []
    return [
        *found_by,
        *("--config-file", file),
        *("--grpc-port", str(PICKER_PORTS["grpc"])),
        *("--grpc-health-port", str(PICKER_PORTS["health"])),
        *("--metrics-port", str(PICKER_PORTS["metrics"])),
        *("--v", str(config.verbosity)),
        *("--zap-encoder", "json"),
        "--secure-serving=false",  # gateway and picker are one stack, and a proxy of a mesh brings its own TLS
        f"--metrics-endpoint-auth={str(policy.metrics_auth).lower()}",
        "--tracing=false",
        *leads,
    ]

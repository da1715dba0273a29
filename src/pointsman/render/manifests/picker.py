"""The picker of a stack: its account with the least that it needs, its configuration, Deployment, Service and pool.

The container listens on 9002 (ext_proc), 9003 (health) and 9090 (metrics); the Service has the resource's port and
9002, both leading to 9002. The flags are the Go picker's, so that its image works as ours does. With an InferencePool
definition on the cluster the picker follows a pool of its own; without, the same Pods by their labels.

Its token is mounted into its own container only, and may do what the picker does and no more: a test compares the Role
with what a picker asks of a real API server. Metrics are for those whom the API server lets read them.
"""

from collections.abc import Sequence

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
    account = {
        **objects.head("ServiceAccount", names.picker, names=names, labels=_LABELS),
        "automountServiceAccountToken": False,
    }
    settings = objects.config_map(names.picker, names=names, labels=_LABELS, data=data)
    deployment = objects.deployment(
        names.picker,
        names=names,
        labels=_LABELS,
        selector={COMPONENT: "epp", NAME: names.stack},
        replicas=config.replicas,
        pod=_pod(
            resource, config, _flags(config, groups, names=names, facts=facts, policy=policy), names=names, facts=facts
        ),
        checksum=objects.digest(data),
        # Of several only the leader is ever ready: waiting for the others would be waiting for ever.
        rolling={"maxSurge": "100%", "maxUnavailable": "100%"} if config.replicas > 1 else None,
    )
    pool = [_pool(config, groups, names=names)] if facts.inference_pool else []
    wall = [network.picker_policy(names=names, labels=_LABELS, facts=facts, policy=policy)]
    return [
        account,
        *_permissions(config, names=names, facts=facts),
        settings,
        *(wall if policy.network_policies else []),
        _service(config, names=names),
        *pool,
        deployment,
    ]


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


def _permissions(config: PickerConfig, *, names: Names, facts: Facts) -> list[Object]:
    api = "rbac.authorization.k8s.io/v1"
    follow = ["list", "watch"]
    rules: list[Object] = [{"apiGroups": [""], "resources": ["pods"], "verbs": follow}]
    if facts.inference_pool:
        rules += [{"apiGroups": [group], "resources": list(kinds), "verbs": follow} for group, kinds in _READ.items()]
    if config.replicas > 1:
        lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        group = f"epp-{names.namespace}-{names.pool if facts.inference_pool else names.picker}"
        rules.append({**lease, "verbs": ["create"]})  # which no name can narrow: there is none yet
        rules.append({**lease, "verbs": ["get", "update"], "resourceNames": [f"{group}.{end}" for end in _LEASES]})
    role = {**objects.head("Role", names.picker, names=names, labels=_LABELS, api=api), "rules": rules}
    binding = {
        **objects.head("RoleBinding", names.picker, names=names, labels=_LABELS, api=api),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.picker},
        "subjects": [{"kind": "ServiceAccount", "name": names.picker, "namespace": names.namespace}],
    }
    return [role, binding]


def _service(config: PickerConfig, *, names: Names) -> Object:
    grpc = PICKER_PORTS["grpc"]
    front = [] if config.port == grpc else [objects.port("grpc", config.port, grpc, protocol="http2")]
    return objects.service(
        names.picker,
        names=names,
        labels=_LABELS,
        selector={COMPONENT: "epp", NAME: names.stack},
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


def _pool(config: PickerConfig, groups: Sequence[Group], *, names: Names) -> Object:
    head = objects.head("InferencePool", names.pool, names=names, labels={}, api=f"{POOL_GROUP}/v1")
    picker = {"name": names.picker, "port": {"number": config.port}, "failureMode": config.failure_mode}
    return {
        **head,
        "spec": {
            "selector": {"matchLabels": _members(groups, names=names)},
            "targetPorts": [{"number": groups[0].port}],
            "endpointPickerRef": picker,
        },
    }


def _pod(
    resource: SimulatorDeployment, config: PickerConfig, built_in: Sequence[str], *, names: Names, facts: Facts
) -> Object:
    health = PICKER_PORTS["health"]
    volume, mount = objects.mounted(names.picker, path="/config")
    token, access = objects.api_access()
    container = {
        "name": "epp",
        "image": config.image,
        "imagePullPolicy": resource.spec.image_pull_policy,
        "args": [*built_in, *config.args],
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
        "readinessProbe": {"grpc": {"port": health, "service": "readiness"}, "periodSeconds": 2, "failureThreshold": 3},
        "volumeMounts": [mount, access],
        **objects.resources(config.resources, memory=_MEMORY),
    }
    return objects.pod(container, facts=facts, grace=_GRACE, volumes=[volume, token], serviceAccountName=names.picker)


def _flags(config: PickerConfig, groups: Sequence[Group], *, names: Names, facts: Facts, policy: Policy) -> list[str]:
    if facts.inference_pool:
        discovery = ["--pool-name", names.pool, "--pool-namespace", names.namespace, "--pool-group", POOL_GROUP]
    else:
        selector = ",".join(f"{name}={value}" for name, value in _members(groups, names=names).items())
        discovery = ["--endpoint-selector", selector, "--endpoint-target-ports", str(groups[0].port)]
    leads = ["--ha-enable-leader-election"] if config.replicas > 1 else []
    return [
        *discovery,
        *("--config-file", f"/config/{CONFIG_KEY}"),
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

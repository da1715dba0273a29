"""The picker of a service: account, rights, Deployment, Service, pool, and what a mesh has to know about its TLS. Pure.

A template that names the pool itself brings its own command line, as KServe's presets do; any other has our flags
before its own, of which the last counts. The picker rolls as a picker of one: the new one is ready before the old one
goes, so that an image that never starts costs nothing (KServe recreates it). Of several only the leader is ever ready,
so they are all replaced at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.api.llminferenceservice import Scheduler
from pointsman.api.simulator import PICKER_PORTS
from pointsman.core import flags
from pointsman.core.documents import to_yaml
from pointsman.render.manifests import network, picker
from pointsman.render.serving import parts
from pointsman.render.serving.names import SCHEDULER, SCHEDULER_PODS
from pointsman.render.serving.parts import Object
from pointsman.render.serving.presets import CERTIFICATES, MAIN, PORT, PresetContext, picker_config

OPERATOR = {"app.kubernetes.io/name": "pointsman", "app.kubernetes.io/component": "operator"}
"""The operator's own Pods: they ask a picker for a handshake before they call it ready."""
_TOGETHER = {"maxSurge": "100%", "maxUnavailable": "100%"}
_SERVED = ("grpc", "grpc-health", "metrics", "zmq")
_PROTOCOLS = {"grpc": "http2", "grpc-health": "http2", "metrics": "http"}
_CONFIG = ("config-text", "config-file", "configText", "configFile")
_DISCOVERY = ("pool-name", "poolName", "endpoint-selector")


def render(context: PresetContext, scheduler: Scheduler, *, staged: bool, https: bool, config: str) -> list[Object]:
    """Return the picker's objects; `https` is how model servers are asked, `config` a configuration from elsewhere."""
    names, facts, policy = context.names, context.facts, context.policy
    replicas = scheduler.replicas or 1
    leads = f"epp-{names.namespace}-{names.pool if facts.inference_pool else names.picker}" if replicas > 1 else ""
    wall = network.picker_policy(
        head=parts.head("NetworkPolicy", names.picker, names=names, labels=SCHEDULER, api="networking.k8s.io/v1"),
        pods=names.picker_pods(),
        gateways=names.gateway_pods(),
        facts=facts,
        policy=policy,
        checkers=[{"namespaceSelector": {}, "podSelector": {"matchLabels": OPERATOR}}],
    )
    pod = _pod(context, scheduler, staged=staged, https=https, config=config)
    return [
        parts.account(names.picker_account, names=names, labels=SCHEDULER),
        *parts.permissions(
            picker.permissions(pool=facts.inference_pool, lease=leads),
            role=names.picker_role,
            binding=names.picker_binding,
            account=names.picker_account,
            names=names,
            labels=SCHEDULER,
        ),
        *([wall] if policy.network_policies else []),
        _deployment(context, scheduler, pod, replicas=replicas),
        _service(context, pod),
        *([_pool(context, scheduler)] if facts.inference_pool else []),
        *([_rule(context)] if facts.istio and serves_tls(pod) else []),
    ]


def serves_tls(pod: Mapping[str, Any]) -> bool:
    """Tell whether a picker's Pods expect TLS: by default they do, as every picker."""
    main = parts.main_container(pod, MAIN) or {}
    line = parts.command_line(main)
    return flags.switch([f"--{word.lstrip('-')}" for word in line], "secure-serving", default=True)


def failure_mode(scheduler: Scheduler) -> str:
    """Return what happens to requests while no picker answers."""
    spec = (scheduler.pool.spec if scheduler.pool else None) or {}
    return str((spec.get("endpointPickerRef") or {}).get("failureMode") or "FailClose")


def _deployment(context: PresetContext, scheduler: Scheduler, pod: Object, *, replicas: int) -> Object:
    names = context.names
    labels = SCHEDULER_PODS | dict(scheduler.labels or {})
    return parts.deployment(
        names.picker,
        names=names,
        labels=SCHEDULER_PODS | {key: value for key, value in labels.items() if key in SCHEDULER_PODS},
        selector=names.picker_pods(),
        pod=pod,
        replicas=replicas,
        pod_labels=labels,
        annotations=scheduler.annotations,
        rolling=_TOGETHER if replicas > 1 else parts.NEVER_AWAY,
    )


def _pod(context: PresetContext, scheduler: Scheduler, *, staged: bool, https: bool, config: str) -> Object:
    pod: Object = dict(scheduler.template or {})
    pod.setdefault("serviceAccountName", context.names.picker_account)
    main = parts.main_container(pod, MAIN)
    if main is None:
        return pod
    given = [str(word) for word in main.get("args") or ()]
    line = parts.command_line(main)
    before = [] if _names(line, _DISCOVERY) else _flags(context)
    after: list[str] = []
    command: Object = {}
    if (scheduler.replicas or 1) > 1 and not _names(line, ("ha-enable-leader-election",)):
        after.append("--ha-enable-leader-election")
    if https and not _names(line, ("model-server-metrics-scheme", "modelServerMetricsScheme")):
        after.append("--model-server-metrics-scheme=https")
    inline = scheduler.config.inline if scheduler.config else None
    if inline is not None or config or not _names(line, _CONFIG):
        text = config or to_yaml(dict(inline) if inline is not None else picker_config(staged=staged))
        given = list(flags.without(given, _CONFIG))  # a picker that is given two does not start
        command = {"command": list(flags.without(main["command"], _CONFIG))} if main.get("command") else {}
        after += ["--config-text", text]
    return parts.with_container(pod, {**main, **command, "args": [*before, *given, *after]})


def _names(line: Sequence[str], known: Sequence[str]) -> bool:
    return any(word.lstrip("-").partition("=")[0] in known for word in line if word.startswith("-"))


def _flags(context: PresetContext) -> list[str]:
    names = context.names
    if context.facts.inference_pool:
        discovery = ["--pool-name", names.pool, "--pool-namespace", names.namespace]
    else:
        selector = ",".join(f"{name}={value}" for name, value in names.servers().items())
        discovery = ["--endpoint-selector", selector, "--endpoint-target-ports", str(PORT)]
    certificate = ["--enable-cert-reload=true", f"--cert-path={CERTIFICATES}"] if context.settings.tls else []
    return [
        *discovery,
        *("--zap-encoder", "json"),
        *("--grpc-port", str(PICKER_PORTS["grpc"])),
        *("--grpc-health-port", str(PICKER_PORTS["health"])),
        *("--metrics-port", str(PICKER_PORTS["metrics"])),
        f"--secure-serving={str(context.settings.tls).lower()}",
        *certificate,
        f"--metrics-endpoint-auth={str(context.policy.metrics_auth).lower()}",
    ]


def _service(context: PresetContext, pod: Object) -> Object:
    """Return the Service, with those of the containers' ports that are known by their names."""
    named = {
        port["name"]: port
        for container in pod.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("name") in _SERVED
    }
    ports = [
        {
            "name": name,
            "port": named[name]["containerPort"],
            "targetPort": name,
            "protocol": named[name].get("protocol", "TCP"),
            **({"appProtocol": _PROTOCOLS[name]} if name in _PROTOCOLS else {}),
        }
        for name in sorted(named)
    ]
    names = context.names
    return parts.service(names.picker_service, names=names, labels=SCHEDULER, selector=names.picker_pods(), ports=ports)


def _pool(context: PresetContext, scheduler: Scheduler) -> Object:
    names = context.names
    spec = dict((scheduler.pool.spec if scheduler.pool else None) or {})
    if not (spec.get("selector") or {}).get("matchLabels"):
        spec["selector"] = {"matchLabels": names.servers()}
    head = parts.head("InferencePool", names.pool, names=names, labels=SCHEDULER, api=f"{picker.POOL_GROUP}/v1")
    return {**head, "spec": spec}


def _rule(context: PresetContext) -> Object:
    """Return what tells Istio that the picker speaks TLS, with a certificate of no authority."""
    names = context.names
    head = parts.head(
        "DestinationRule", names.picker_rule, names=names, labels=SCHEDULER, api="networking.istio.io/v1beta1"
    )
    host = f"{names.picker_service}.{names.namespace}.svc.{context.facts.domain}"
    tls = {"mode": "SIMPLE", "insecureSkipVerify": True, "sni": host}
    return {**head, "spec": {"host": host, "trafficPolicy": {"tls": tls}}}

"""The model servers of a service: one Deployment, or one for each stage, and the Services in front. Pure.

The Service leads to the servers that answer requests: those of the role `both`, or of `decode` when there is prefill.
Parallelism becomes vLLM's flags, unless the command line has them. A server whose command line has a certificate speaks
TLS, and everybody who asks it is told so (`speaks_tls`).
"""

from collections.abc import Mapping
from typing import Any

from pointsman.api.llminferenceservice import LLMSpec, Parallelism, Workload
from pointsman.render.serving import parts
from pointsman.render.serving.names import KSERVE_COMPONENT, PREFILL, ROLE, SERVERS, WORKLOAD
from pointsman.render.serving.parts import Object
from pointsman.render.serving.presets import MAIN, PORT, SIDECAR, PresetContext

_PASSED_ON = ("k8s.v1.cni.cncf.io", "kueue.x-k8s.io", "prometheus.io")
_CERTIFICATE = ("ssl-certfile", "self-signed-certs")
_FLAGS = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "data_local": "--data-parallel-size-local",
    "data_rpc_port": "--data-parallel-rpc-port",
}


def render(context: PresetContext, spec: LLMSpec, *, headless: bool) -> list[Object]:
    """Return the accounts, Deployments and Services; `headless` is for a gateway that asks DNS."""
    names = context.names
    role = serving_role(spec)
    https = speaks_tls(spec)
    port = {
        "name": "https" if https else "http",
        "port": PORT,
        "targetPort": PORT,
        "protocol": "TCP",
        "appProtocol": "https" if https else "http",
    }
    front = parts.service(
        names.workload_service, names=names, labels=WORKLOAD, selector=names.servers(role), ports=[port]
    )
    pods = parts.service(
        names.pods, names=names, labels=WORKLOAD, selector=names.servers(role), ports=[port], headless=True
    )
    return [
        *_sidecar_rights(context, spec),
        *_deployments(context, spec, role=role),
        front,
        *([pods] if headless else []),
        *([_rule(context)] if https and context.facts.istio else []),
    ]


def serving_role(spec: LLMSpec) -> str:
    """Return the role of the servers that answer requests."""
    return "decode" if spec.prefill is not None else "both"


def speaks_tls(spec: LLMSpec) -> bool:
    """Tell whether the servers that answer requests expect TLS: their command line has a certificate."""
    main = parts.main_container(spec.template or {}, MAIN) or {}
    return any(word.lstrip("-").partition("=")[0] in _CERTIFICATE for word in parts.command_line(main))


def _deployments(context: PresetContext, spec: LLMSpec, *, role: str) -> list[Object]:
    made = [_deployment(context, spec, name=context.names.workload, labels=WORKLOAD, role=role)]
    if spec.prefill is not None:
        prefill = _deployment(context, spec.prefill, name=context.names.prefill, labels=PREFILL, role="prefill")
        made.append(prefill)
    return made


def _deployment(
    context: PresetContext, workload: Workload, *, name: str, labels: Mapping[str, str], role: str
) -> Object:
    names = context.names
    made = parts.deployment(
        name,
        names=names,
        labels={**labels, **SERVERS, ROLE: role},
        selector=names.servers(role),
        pod=_pod(context, workload),
        replicas=workload.replicas,
        pod_labels={**_own(context.resource.metadata.labels), **(workload.labels or {})},
        annotations={**_own(context.resource.metadata.annotations), **(workload.annotations or {})},
    )
    assert made["spec"]["template"]["metadata"]["labels"][KSERVE_COMPONENT] == SERVERS[KSERVE_COMPONENT]
    return made


def _own(marks: Mapping[str, str]) -> dict[str, str]:
    """Return those of a service's own labels or annotations that its Pods have too."""
    return {name: value for name, value in marks.items() if name.partition("/")[0] in _PASSED_ON}


def _pod(context: PresetContext, workload: Workload) -> Object:
    pod: Object = dict(workload.template or {})
    if has_sidecar(pod):
        pod.setdefault("serviceAccountName", context.names.workload)
        pod["automountServiceAccountToken"] = True  # its sidecar follows the pool
    main = parts.main_container(pod, MAIN)
    if main is None or workload.parallelism is None:
        return pod
    more = _parallel(workload.parallelism, parts.command_line(main))
    return parts.with_container(pod, {**main, "args": [*(main.get("args") or ()), *more]}) if more else pod


def _parallel(wanted: Parallelism, line: list[str]) -> list[str]:
    known = {word.partition("=")[0] for word in line}
    flags = [
        word
        for name, flag in _FLAGS.items()
        if getattr(wanted, name) is not None and flag not in known
        for word in (flag, str(getattr(wanted, name)))
    ]
    expert = "--enable-expert-parallel"
    return [*flags, *([expert] if wanted.expert and expert not in known else [])]


def has_sidecar(pod: Mapping[str, Any]) -> bool:
    """Tell whether llm-d's sidecar for disaggregated serving is in a Pod."""
    return any(each.get("name") == SIDECAR for each in pod.get("initContainers") or ())


def _sidecar_rights(context: PresetContext, spec: LLMSpec) -> list[Object]:
    """Return the account of servers with a sidecar: it looks up Pods of the pool before it sends anything to one."""
    names = context.names
    template = spec.template or {}
    if not has_sidecar(template) or template.get("serviceAccountName", names.workload) != names.workload:
        return []
    follow = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": follow},
        {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": follow},
    ]
    return [
        parts.account(names.workload, names=names, labels=WORKLOAD),
        *parts.permissions(
            rules,
            role=names.workload_role,
            binding=names.workload_binding,
            account=names.workload,
            names=names,
            labels=WORKLOAD,
        ),
    ]


def _rule(context: PresetContext) -> Object:
    """Return what tells Istio that model servers speak TLS."""
    names = context.names
    head = parts.head(
        "DestinationRule", names.workload_service, names=names, labels=WORKLOAD, api="networking.istio.io/v1beta1"
    )
    host = f"{names.workload_service}.{names.namespace}.svc.{context.facts.domain}"
    tls = {"mode": "SIMPLE", "insecureSkipVerify": True, "sni": host}
    return {**head, "spec": {"host": host, "trafficPolicy": {"tls": tls}}}

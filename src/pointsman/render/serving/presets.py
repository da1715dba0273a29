"""What a service is made of when it says nothing: the well-known configs, as our own specs. Pure.

An LLMInferenceServiceConfig of a preset's name (`kserve-config-llm-template`, …), in the service's namespace or the
system's, takes the preset's place: that is how an administrator changes images, or puts simulators where model servers
would be. Ours differ from KServe's where theirs would not do without KServe: models are fetched by the server itself
(hf://) or mounted (pvc://), the picker's token is in its own container only, and probes ask every two seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pointsman.api.llminferenceservice import LLMInferenceService
from pointsman.api.simulator import PICKER_PORTS
from pointsman.render.envoy.paths import INFERENCE
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy
from pointsman.render.serving.names import ServiceNames
from pointsman.render.serving.settings import ServingSettings

Object = dict[str, Any]

SCHEDULER = "config-llm-scheduler"
ROUTE = "config-llm-router-route"
TEMPLATE = "config-llm-template"
DECODE = "config-llm-decode-template"
PREFILL = "config-llm-prefill-template"

MAIN = "main"
SIDECAR = "llm-d-routing-sidecar"
PORT, BEHIND_SIDECAR = 8000, 8001
CERTIFICATES = "/var/run/kserve/tls"
MODELS = "/mnt/models"
_TLS_VOLUME = "tls-certs"
_ZMQ = 5557
_GRACE, _PICKER_GRACE = 60, 130
_FAREWELL = 5


@dataclass(frozen=True, kw_only=True)
class PresetContext:
    """What presets depend on."""

    resource: LLMInferenceService
    names: ServiceNames
    settings: ServingSettings
    facts: Facts
    policy: Policy
    sidecar: bool = True
    """Whether decode servers stand behind one."""


def preset(name: str, context: PresetContext) -> Object:
    """Return the spec of a well-known config; `name` is without the prefix."""
    return _PRESETS[name](context)


def certificate_volume(names: ServiceNames) -> tuple[Object, Object]:
    """Return the volume with the service's certificate, and its mount."""
    volume = {"name": _TLS_VOLUME, "secret": {"secretName": names.certificate}}
    return volume, {"name": _TLS_VOLUME, "mountPath": CERTIFICATES, "readOnly": True}


def _scheduler(context: PresetContext) -> Object:
    names = context.names
    pool = {
        "endpointPickerRef": {
            "kind": "Service",
            "name": names.picker_service,
            "port": {"number": PICKER_PORTS["grpc"]},
            "failureMode": "FailOpen",
        },
        "selector": {"matchLabels": names.servers()},
        "targetPorts": [{"number": PORT}],
    }
    return {"router": {"scheduler": {"pool": {"spec": pool}, "template": _picker_pod(context)}}}


def _picker_pod(context: PresetContext) -> Object:
    names, settings = context.names, context.settings
    token, access = objects.api_access()
    volumes, mounts = [token], [access]
    if settings.tls:
        volume, mount = certificate_volume(names)
        volumes.append(volume)
        mounts.append(mount)
    container = {
        "name": MAIN,
        "image": settings.picker_image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            *objects.identity(),
            # Our image is one for all parts and asks which one it is; others do not look.
            {"name": "POINTSMAN_COMMAND", "value": "epp"},
        ],
        "ports": [
            {"name": name if name != "health" else "grpc-health", "containerPort": number, "protocol": "TCP"}
            for name, number in (*PICKER_PORTS.items(), ("zmq", _ZMQ))
        ],
        "livenessProbe": _grpc_probe("liveness", initialDelaySeconds=5, periodSeconds=10, failureThreshold=3),
        "readinessProbe": _grpc_probe("readiness", periodSeconds=2, failureThreshold=3),
        "resources": {"requests": {"cpu": "256m", "memory": "500Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    return objects.pod(
        container, facts=context.facts, grace=_PICKER_GRACE, volumes=volumes, serviceAccountName=names.picker_account
    )


def _grpc_probe(service: str, **timing: int) -> Object:
    return {"grpc": {"port": PICKER_PORTS["health"], "service": service}, **timing}


def _route(context: PresetContext) -> Object:
    names = context.names
    namespace, name = context.settings.gateway
    backend = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": names.pool, "weight": 1}
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name, "namespace": namespace}
    rules = [_rule(path, backend, prefix=names.prefix) for path in INFERENCE]
    return {"router": {"route": {"http": {"spec": {"parentRefs": [parent], "rules": rules}}}}}


def _rule(path: str, backend: Object, *, prefix: str) -> Object:
    """Return the rule of one path: found below the service's own, which the model server does not see."""
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}}
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": f"{prefix}{path}"}}],
        "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
        "backendRefs": [backend],
        "timeouts": {"request": "0s", "backendRequest": "0s"},  # an answer may stream for as long as it likes
    }


def _template(context: PresetContext) -> Object:
    return {"template": _server_pod(context, port=PORT)}


def _prefill(context: PresetContext) -> Object:
    return {"prefill": {"template": _server_pod(context, port=PORT)}}


def _decode(context: PresetContext) -> Object:
    if not context.sidecar:
        return _template(context)
    pod = _server_pod(context, port=BEHIND_SIDECAR)
    sidecar = {
        "name": SIDECAR,
        "image": context.settings.sidecar_image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",  # beside the server for as long as it lives
        "args": [
            f"--port={PORT}",
            f"--vllm-port={BEHIND_SIDECAR}",
            "--connector=nixlv2",
            "--secure-proxy=false",
            "--enable-ssrf-protection=true",
        ],
        "env": [
            {"name": "INFERENCE_POOL_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "INFERENCE_POOL_NAME", "value": context.names.pool},
        ],
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "securityContext": _ordinary(),
    }
    return {"template": {**pod, "initContainers": [sidecar]}}


def _server_pod(context: PresetContext, *, port: int) -> Object:
    names = context.names
    container: Object = {
        "name": MAIN,
        "image": context.settings.model_image,
        "imagePullPolicy": "IfNotPresent",
        # All of it in the command: arguments are for whoever writes a template.
        "command": [
            *("vllm", "serve", _model(context.resource)),
            *("--served-model-name", context.resource.model_name),
            *("--port", str(port)),
        ],
        "env": [
            {"name": "HOME", "value": "/home"},
            {"name": "VLLM_LOGGING_LEVEL", "value": "INFO"},
            {"name": "HF_HUB_CACHE", "value": "/models"},
        ],
        "ports": [{"containerPort": port, "protocol": "TCP"}],
        "startupProbe": objects.http_probe("/health", port, periodSeconds=10, failureThreshold=60),
        "readinessProbe": objects.http_probe("/health", port, periodSeconds=5, timeoutSeconds=5, failureThreshold=3),
        "livenessProbe": objects.http_probe("/health", port, periodSeconds=10, timeoutSeconds=10, failureThreshold=3),
        "securityContext": _ordinary(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "home", "mountPath": "/home"},
            {"name": "dshm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
            {"name": "model-cache", "mountPath": "/models"},
        ],
    }
    if context.facts.sleep_action:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": _FAREWELL}}}
    volumes: list[Object] = [
        {"name": "home", "emptyDir": {}},
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "model-cache", "emptyDir": {}},
    ]
    if context.settings.tls:
        volume, mount = certificate_volume(names)
        volumes.append(volume)
        container["volumeMounts"].append(mount)
    volumes += _claim(context.resource, container)
    return {
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": _GRACE,
        "automountServiceAccountToken": False,
    }


def _ordinary() -> Object:
    """Return what a model server needs of its container: images of vLLM run as root and write where they like."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _model(resource: LLMInferenceService) -> str:
    """Return what the server is told to serve: a name that it fetches, or a folder."""
    uri = resource.spec.model.uri if resource.spec.model else ""
    return uri.removeprefix("hf://") if uri.startswith("hf://") else MODELS


def _claim(resource: LLMInferenceService, container: Object) -> list[Object]:
    uri = resource.spec.model.uri if resource.spec.model else ""
    if not uri.startswith("pvc://"):
        return []
    claim, _, path = uri.removeprefix("pvc://").partition("/")
    mount = {"name": "model", "mountPath": MODELS, "readOnly": True, **({"subPath": path} if path else {})}
    container["volumeMounts"].append(mount)
    return [{"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}]


_PRESETS = {SCHEDULER: _scheduler, ROUTE: _route, TEMPLATE: _template, DECODE: _decode, PREFILL: _prefill}


def picker_config(*, staged: bool) -> Mapping[str, Any]:
    """Return the EndpointPickerConfig of a picker that is told nothing, in the names that every release knows."""
    weights = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
    scorers = [{"pluginRef": name, "weight": weight} for name, weight in weights.items()]

    def profile(name: str, *filters: str) -> Object:
        plain = [{"pluginRef": plugin} for plugin in (*filters, "max-score-picker")]
        return {"name": name, "plugins": [*plain, *scorers]}

    if staged:
        handlers: list[Object] = [
            {"type": "prefill-header-handler"},
            {"type": "pd-profile-handler", "parameters": {"threshold": 0}},
            {"type": "prefill-filter"},
            {"type": "decode-filter"},
        ]
        profiles = [profile(stage, f"{stage}-filter") for stage in ("prefill", "decode")]
    else:
        handlers, profiles = [{"type": "single-profile-handler"}], [profile("default")]
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*handlers, *({"type": name} for name in (*weights, "max-score-picker"))],
        "schedulingProfiles": profiles,
    }

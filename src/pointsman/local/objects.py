"""From the objects that a cluster would get to a plan for this machine. Pure.

| there | here |
|---|---|
| Deployment | processes: `pointsman sim`, `pointsman epp`, Envoy |
| Service | a loopback port that leads to the Pods; headless: the list of them |
| ConfigMap in a volume | files |
| ServiceAccount, Role, RoleBinding | nothing: nobody here asks an API server |

A container is known by what it runs: `POINTSMAN_COMMAND` in its environment, or Envoy as its command.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pointsman.core import flags
from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.local import envoys
from pointsman.local.plan import Deployment, Role, Service, StackPlan, matches
from pointsman.render.manifests.stack import Stack
from pointsman.render.serving.service import SHORTHAND, SIMULATED, LLMStack

Object = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {"sim": "simulator", "epp": "picker"}
# Without a cluster there is nobody to ask about Pods, and nobody to keep a lease.
_OF_A_CLUSTER = (
    "pool-name",
    "pool-namespace",
    "pool-group",
    "endpoint-selector",
    "endpoint-target-ports",
    "cert-path",
)
# Nor is there a Secret to read a certificate from: the picker makes one.
_OF_A_MOUNT = ("ha-enable-leader-election", "enable-cert-reload")
_HTTP = 80
_TOLD = {SIMULATED, SHORTHAND}
"""What is said although nothing is wrong."""


def plan(stack: Stack | LLMStack) -> StackPlan:
    """Return what of a rendered stack runs here, and how."""
    maps = {each["metadata"]["name"]: each["data"] for each in _of_kind("ConfigMap", stack.objects)}
    made = _of_kind("Deployment", stack.objects)
    services = tuple(_service(each, deployments=made) for each in _of_kind("Service", stack.objects))
    deployments = tuple(_deployment(each, maps=maps) for each in made)
    return StackPlan(
        deployments=deployments,
        services=services,
        entry=_entry(stack, services=services),
        model=next(flags.value(each.arguments, "model") for each in deployments if each.role == "simulator"),
        failure_mode=stack.failure_mode,
        notices=tuple(one.message for one in stack.notices if not one.holds or {one.type, one.reason} & _TOLD),
    )


def _of_kind(kind: str, objects: Iterable[Object]) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def _entry(stack: Stack | LLMStack, *, services: Sequence[Service]) -> tuple[str, int]:
    """Return the Service of the first gateway, or without any the one in front of the simulators."""
    if stack.gateway_url:
        where = urlsplit(stack.gateway_url)
        return (where.hostname or "").partition(".")[0], where.port or _HTTP
    front = next(service for service in services if service.name == stack.front)
    return front.name, next(iter(front.ports))


def _service(document: Object, *, deployments: Sequence[Object]) -> Service:
    spec = document["spec"]
    named = _named_ports(spec["selector"], deployments)
    return Service(
        name=document["metadata"]["name"],
        selector=spec["selector"],
        ports={port["port"]: named.get(port["targetPort"], port["targetPort"]) for port in spec["ports"]},
        headless=spec.get("clusterIP") == "None",
    )


def _named_ports(selector: Mapping[str, str], deployments: Sequence[Object]) -> dict[str, int]:
    """Return the ports of the Pods that a Service selects, by their names."""
    templates = [each["spec"]["template"] for each in deployments]
    return {
        port["name"]: port["containerPort"]
        for template in templates
        if matches(selector, template["metadata"]["labels"])
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
        if "name" in port
    }


def _deployment(document: Object, *, maps: Mapping[str, Mapping[str, str]]) -> Deployment:
    template = document["spec"]["template"]
    (container,) = template["spec"]["containers"]
    role = _role(container, name=document["metadata"]["name"])
    files = _files(template["spec"], container, maps=maps)
    arguments = tuple(container["args"])
    selector = flags.value(arguments, "endpoint-selector") if role == "picker" else ""
    return Deployment(
        name=document["metadata"]["name"],
        namespace=document["metadata"]["namespace"],
        role=role,
        replicas=_replicas(document, role=role),
        ports=_ports(container, role=role, files=files),
        arguments=flags.without(arguments, _OF_A_CLUSTER, switches=_OF_A_MOUNT),
        labels=template["metadata"]["labels"],
        files=files,
        selects=dict(pair.split("=", 1) for pair in selector.split(",") if pair),
    )


def _replicas(document: Object, *, role: Role) -> int:
    # Of several pickers one leads and the others stand by; they would need a lease to know which.
    wanted: int = document["spec"].get("replicas", 1)
    return min(wanted, 1) if role == "picker" else wanted


def _role(container: Object, *, name: str) -> Role:
    if container.get("command", [""])[0].endswith("/envoy"):
        return "gateway"
    command = next((one.get("value") for one in container.get("env", ()) if one["name"] == "POINTSMAN_COMMAND"), "")
    if command not in _ROLES:
        raise UserError(f"Deployment {name} runs {container['image']}, which cannot run here: only on a cluster")
    return _ROLES[command]


def _files(pod: Object, container: Object, *, maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    named = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] in named]
    return {
        f"{mount['mountPath']}/{key}": text
        for mount in mounts
        for key, text in maps.get(named[mount["name"]], {}).items()  # one that is not of the stack is not here
    }


def _ports(container: Object, *, role: Role, files: Mapping[str, str]) -> tuple[int, ...]:
    declared = [port["containerPort"] for port in container["ports"]]
    inside = [port for text in files.values() for port in envoys.own_ports(parse_yaml(text, name="envoy"))]
    return tuple(dict.fromkeys([*declared, *(inside if role == "gateway" else ())]))

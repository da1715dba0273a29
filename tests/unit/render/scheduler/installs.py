"""Installs for tests: resources, clusters, and ways to find things in what is rendered."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pointsman.api import SchedulerInstall
from pointsman.core.documents import read_yaml
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Policy
from pointsman.render.scheduler.install import Installed, Surroundings, install

SAMPLES = Path(__file__).parents[4] / "config" / "samples"
ON: dict[str, Any] = {"enabled": True}
WHOLE: dict[str, Any] = {
    "epp": ON,
    "gateway": ON,
    "routing": ON | {"backendType": "InferencePool"},
    "envoyFilter": ON,
}
ISTIO = Facts(
    inference_pool=True,
    gateway_api=True,
    istio=True,
    gateway_classes=frozenset({"istio"}),
    istio_classes=frozenset({"istio"}),
    envoy_filter=True,
    reference_grant=True,
)
WITHOUT_POOLS = replace(ISTIO, inference_pool=False)
OTHER = replace(ISTIO, gateway_classes=frozenset({"kgateway"}), istio_classes=frozenset())
HERE, THERE = "sched", "sims"


def resource(name: str = "install", /, **spec: Any) -> SchedulerInstall:
    """Return a resource in the scheduler's namespace, for model servers in another."""
    document = {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SchedulerInstall",
        "metadata": {"name": name, "namespace": HERE},
        "spec": {"simulatorNamespace": THERE, **spec},
    }
    return SchedulerInstall.model_validate(document)


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return blocks with some of their fields changed."""
    both = {
        name: {**base.get(name, {}), **value} if isinstance(value, dict) else value for name, value in change.items()
    }
    return {**base, **both}


def rendered(
    *, facts: Facts = ISTIO, policy: Policy | None = None, around: Mapping[str, Any] | None = None, **change: Any
) -> Installed:
    """Return the whole install with some blocks changed, in such surroundings."""
    surroundings = Surroundings(facts=facts, **(around or {}))
    return install(resource(**merged(WHOLE, change)), surroundings, policy or Policy())


def sample(name: str = "") -> SchedulerInstall:
    """Return a sample."""
    return SchedulerInstall.model_validate(read_yaml(SAMPLES / f"sim_v1alpha1_schedulerinstall{name}.yaml"))


def names(installed: Installed) -> set[str]:
    """Return kind, namespace and name of all objects."""
    return {f"{one['kind']}/{one['metadata']['namespace']}/{one['metadata']['name']}" for one in installed.objects}


def find(installed: Installed, kind: str, name: str = "", *, namespace: str = "") -> Object:
    """Return the one object of a kind, with a name and a namespace if these are needed to tell."""
    (found,) = (
        one
        for one in installed.objects
        if one["kind"] == kind
        and name in ("", one["metadata"]["name"])
        and namespace in ("", one["metadata"]["namespace"])
    )
    return found


def patches(installed: Installed, what: str = "") -> list[Object]:
    """Return the patches of the EnvoyFilter, all or those that apply to something."""
    found: list[Object] = find(installed, "EnvoyFilter")["spec"]["configPatches"]
    return [one for one in found if what in ("", one["applyTo"])]


def entries(installed: Installed) -> dict[str, dict[str, Object]]:
    """Return what the EnvoyFilter says for each route: entries by the filter's name."""
    result: dict[str, dict[str, Object]] = {}
    for one in patches(installed, "HTTP_ROUTE"):
        route = one["match"]["routeConfiguration"]["vhost"]["route"]["name"]
        result.setdefault(route, {}).update(one["patch"]["value"]["typed_per_filter_config"])
    return result


def notice(installed: Installed, type_: str) -> tuple[bool, str, str]:
    """Return what is said about something."""
    (found,) = (one for one in installed.notices if one.type == type_)
    return found.holds, found.reason, found.message


def route(rules: Iterable[Object], *, name: str = "mine", namespace: str = HERE, **status: Any) -> Object:
    """Return somebody's HTTPRoute on the install's gateway."""
    parent = {"name": "infra-inference-scheduling-inference-gateway", "namespace": HERE}
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"parentRefs": [parent], "rules": list(rules)},
        **({"status": status} if status else {}),
    }


def pool_ref(name: str = "gaie-inference-scheduling", **more: Any) -> Object:
    """Return a reference to a pool."""
    return {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "namespace": THERE, **more}

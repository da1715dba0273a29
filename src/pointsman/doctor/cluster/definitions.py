"""What the cluster itself must have: an API server that answers, the definitions, an Istio that follows pools.

The inference definitions belong to someone else, or to us (`pointsman crds`); here they are only followed. They may be
missing, too old, or just being replaced: then whatever is said about pools is about nothing, so this comes first.
"""

from pointsman.core.kinds import Key, Object, key_of
from pointsman.crds.releases import minor, release_of
from pointsman.doctor.cluster.case import Case, status_of_parent, told
from pointsman.doctor.cluster.objects import (
    GATEWAY_API,
    INFERENCE,
    INFERENCE_OLD,
    Objects,
    at,
    condition,
    each,
    mapping,
)
from pointsman.doctor.findings import Finding, failed, ok, skipped, warned

_POOLS = f"inferencepools.{INFERENCE}"
_OLD_POOLS = f"inferencepools.{INFERENCE_OLD}"
_EXTENSION = "ENABLE_GATEWAY_API_INFERENCE_EXTENSION"
_REVISION = "istio.io/rev"
_FIRST_ISTIO = (1, 28)
_GATEWAY_INSTALL = (
    "kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.5.1/standard-install.yaml"
)


def api_answers(case: Case) -> Finding:
    """Whether anything can be seen."""
    name = "the API server answers"
    if case.cluster.unreachable:
        cause = "no cluster can be looked at: it is away, or the kubeconfig is for another one"
        return failed(name, case.cluster.unreachable, cause=cause, fix="kubectl cluster-info")
    if case.objects.unseen:
        kinds = ", ".join(f"{kind} ({why})" for kind, why in case.objects.unseen.items())
        return warned(
            name,
            f"not to be seen: {kinds}",
            cause="your account may not list them, so the checks about them are blind",
            fix=f"kubectl auth can-i list {next(iter(case.objects.unseen)).lower()} -A",
        )
    return ok(name, f"{sum(map(len, case.objects.found.values()))} objects were looked at")


def gateway_definitions(case: Case) -> Finding:
    """Whether the Gateway API is there."""
    name = "the Gateway API is installed"
    if case.path.own_envoy is not None:
        return skipped(name, "an Envoy of its own needs none")
    if _blind(case):
        return skipped(name, "the definitions could not be listed")
    wanted = [f"{plural}.{GATEWAY_API}" for plural in ("gatewayclasses", "gateways", "httproutes", "referencegrants")]
    missing = [one for one in wanted if _definition(case.objects, one) is None]
    if missing:
        cause = "no Gateway or route can exist without their definitions"
        return failed(name, f"missing: {', '.join(missing)}", cause=cause, fix=_GATEWAY_INSTALL)
    found = _definition(case.objects, wanted[1])
    return _served(name, found, "v1", upgrade=_GATEWAY_INSTALL) or ok(name, _release(found))


def inference_definitions(case: Case) -> Finding:
    """Whether InferencePools are there in the version that gateways follow."""
    name = "the inference definitions are installed"
    if _blind(case):
        return skipped(name, "the definitions could not be listed")
    found = _definition(case.objects, _POOLS)
    if found is None and not case.uses_pool:
        return skipped(name, "no route leads to an InferencePool")
    if found is None and _definition(case.objects, _OLD_POOLS):
        evidence = f"only {_OLD_POOLS} is there, {_POOLS} is not"
        cause = f"the definitions are of before v1.0: routes and pickers of today name the group {INFERENCE}"
        return failed(name, evidence, cause=cause, fix="pointsman crds install")
    if found is None:
        cause = "no InferencePool can exist, so no route to one can be resolved"
        return failed(name, f"{_POOLS} is missing", cause=cause, fix="pointsman crds install")
    return (
        _changing(name, found)
        or _served(name, found, "v1", upgrade="pointsman crds upgrade")
        or ok(name, _release(found))
    )


def istio_follows_pools(case: Case) -> Finding:
    """Whether the Istio that makes the gateway knows InferencePools at all."""
    name = "Istio follows InferencePools"
    backend = case.path.backend or {}
    if not case.istio or backend.get("kind") != "InferencePool":
        return skipped(name, "no InferencePool behind a gateway of Istio")
    istiod = _istiod_of(case)
    where = key_of(istiod) if istiod else Key("istio-system", "istiod")
    switch_on = f"kubectl -n {where.namespace} set env deployment/{where.name} {_EXTENSION}=true"
    refused = condition(status_of_parent(case.path.route or {}, case.path.gateway), "ResolvedRefs")
    if refused and refused.get("reason") == "InvalidKind" and _EXTENSION in str(refused.get("message")):
        stale = _stale_pool(case)
        cause = f"istiod runs without {_EXTENSION}=true, so the route leads nowhere{stale}"
        return failed(name, told(refused), cause=cause, fix=switch_on)
    if istiod is None:
        return skipped(name, "istiod is no Deployment that can be seen here")
    return _istiod(name, istiod, switch_on=switch_on)


def _istiod_of(case: Case) -> Object | None:
    """Return the istiod that makes the gateway: of several that of its revision, else one that follows pools."""
    found = [d for d in case.objects.all("Deployment") if at(d, "metadata", "labels", "app") == "istiod"]
    revision = at(case.path.gateway, "metadata", "labels", _REVISION)
    named = [one for one in found if revision and at(one, "metadata", "labels", _REVISION) == revision]
    able = [one for one in found if _variables(one).get(_EXTENSION, "").lower() == "true"]
    return next(iter((*named, *able, *found)), None)


def _variables(istiod: Object) -> dict[str, str]:
    container = (each(istiod, "spec", "template", "spec", "containers") or [{}])[0]
    return {str(one.get("name")): str(one.get("value", "")) for one in each(container, "env")}


def _istiod(name: str, istiod: Object, *, switch_on: str) -> Finding:
    container = (each(istiod, "spec", "template", "spec", "containers") or [{}])[0]
    image = str(container.get("image", ""))
    version = minor(image.rpartition(":")[2])
    if version is not None and version < _FIRST_ISTIO:
        cause = f"Istio follows {INFERENCE}/v1 from 1.28 on"
        return failed(name, f"istiod is {image}", cause=cause, fix="istioctl upgrade")
    said = _variables(istiod)
    if said.get(_EXTENSION, "").lower() != "true":
        evidence = f"istiod has {_EXTENSION}={said.get(_EXTENSION) or 'unset'}"
        cause = "it takes no notice of InferencePools unless that is true, and the default is false"
        return failed(name, evidence, cause=cause, fix=switch_on)
    if not at(istiod, "status", "readyReplicas"):
        fix = f"kubectl -n {key_of(istiod).namespace} describe pods -l app=istiod"
        return failed(name, "no replica of istiod is ready", cause="nobody programs the gateway", fix=fix)
    return ok(name, f"{image}, {_EXTENSION}=true")


def _stale_pool(case: Case) -> str:
    conditions = status_of_parent(case.path.pool or {}, case.path.gateway)
    happy = case.path.pool is not None and any(one.get("status") == "True" for one in conditions)
    return "; the pool's own Accepted=True is of the time before, do not believe it" if happy else ""


def _blind(case: Case) -> bool:
    return bool(case.cluster.unreachable) or "CustomResourceDefinition" in case.objects.unseen


def _definition(objects: Objects, name: str) -> Object | None:
    return objects.get("CustomResourceDefinition", "", name)


def _changing(name: str, definition: Object) -> Finding | None:
    """Return what is wrong with a definition that is on its way out or in."""
    what = key_of(definition).name
    if at(definition, "metadata", "deletionTimestamp"):
        since = at(definition, "metadata", "deletionTimestamp")
        waits = condition(each(definition, "status", "conditions"), "Terminating")
        evidence = f"{what} is being deleted since {since}{'; ' + told(waits) if waits else ''}"
        fix = f"kubectl wait --for=delete crd/{what} --timeout=180s && pointsman crds install"
        return failed(name, evidence, cause="someone replaces it, and its objects go with it", fix=fix)
    accepted = condition(each(definition, "status", "conditions"), "NamesAccepted")
    if accepted and accepted.get("status") == "False":
        cause = "another definition has the same names, so this one is not served"
        return failed(name, f"{what}: {told(accepted)}", cause=cause, fix="kubectl get crds | grep -i inferencepool")
    established = condition(each(definition, "status", "conditions"), "Established")
    if established is None or established.get("status") != "True":
        fix = f"kubectl wait --for=condition=Established crd/{what} --timeout=60s"
        return failed(name, f"{what}: {told(established)}", cause="the API server does not serve it yet", fix=fix)
    return None


def _served(name: str, definition: Object | None, version: str, *, upgrade: str) -> Finding | None:
    served = [str(one.get("name")) for one in each(definition, "spec", "versions") if one.get("served")]
    if definition is None or version in served:
        return None
    evidence = f"{key_of(definition).name} is served as {', '.join(served) or 'nothing'}{_of(definition)}"
    return failed(name, evidence, cause=f"{version} is what gateways and pickers of today read", fix=upgrade)


def _release(definition: Object | None) -> str:
    return f"{key_of(definition).name}{_of(definition)}" if definition else "there"


def _of(definition: Object) -> str:
    release = release_of(mapping(definition, "metadata", "annotations"))
    release = release or str(
        mapping(definition, "metadata", "annotations").get("gateway.networking.k8s.io/bundle-version", "")
    )
    return f" of release {release}" if release else ""

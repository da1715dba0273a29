"""One spec out of many: presets, then the configs that a service names, then its own. Pure.

Later ones win, list by list as `merge` says; then templates are evaluated and the whole is read by the model, so that a
rule holds for what is run, wherever the parts came from. Which presets apply follows from the service with its configs:
a picker, a route, one kind of model server or two.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pointsman.api.llminferenceservice import LLMSpec, unacted
from pointsman.core.errors import UserError
from pointsman.core.values import check
from pointsman.render.serving import pools, presets
from pointsman.render.serving.merge import MergeConflict, merged
from pointsman.render.serving.presets import PresetContext
from pointsman.render.serving.shapes import misshapen
from pointsman.render.serving.templates import TemplateError, expanded

Object = dict[str, Any]
Configs = Mapping[str, Mapping[str, Any]]
"""Specs of LLMInferenceServiceConfigs by name, those that a service of this namespace finds."""
Reason = Literal["ConfigNotFound", "CombineBaseError", "InvalidRenderedConfig"]

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class CombineError(UserError):
    """Why there is no spec to act on."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


@dataclass(frozen=True, kw_only=True)
class Combined:
    """What to act on."""

    spec: LLMSpec
    applied: tuple[str, ...]
    """The configs that went into it, in order; presets of our own are without a prefix."""
    unacted: tuple[str, ...]
    """The fields of the service and its configs that are kept and not acted on."""


def combine(context: PresetContext, document: Mapping[str, Any], configs: Configs) -> Combined:
    """Return the whole spec of a service, whose own is in `document`. Raises CombineError."""
    own = _shorthand(_shaped(document.get("spec") or {}, "the service"))
    _check_name(context.resource.metadata.name)
    named = [reference.name for reference in context.resource.spec.base_refs or ()]
    layers = [_config(name, configs, context) for name in named]
    try:
        known = _over([*layers, own])
        told = _read(known, "spec")
        # Presets are about the model, and a config may be who names it.
        whose = replace(context, resource=context.resource.model_copy(update={"spec": told}))
        begun = [_preset(name, configs, whose) for name in _presets(known)]
        whole = expanded(_over([*(spec for _, spec in begun), *layers, own]), _variables(context, known))
    except (MergeConflict, TemplateError) as error:
        raise CombineError("CombineBaseError", str(error)) from None
    spec = _read(whole, "spec")
    _check_whole(spec)
    _check_parents(told, here=context.names.namespace)
    return Combined(
        spec=spec,
        applied=(*(name for name, _ in begun), *named),
        unacted=tuple(dict.fromkeys(unacted(told, path="spec"))),
    )


def _shaped(spec: Mapping[str, Any], whose: str) -> Mapping[str, Any]:
    """Return a spec whose opaque parts are what they are read as. Raises CombineError."""
    wrong = next(misshapen(spec), "")
    if wrong:
        raise CombineError("CombineBaseError", f"{whose}: {wrong}")
    return spec


def _shorthand(spec: Mapping[str, Any]) -> Object:
    """Return a spec with `router.scheduler.image` put where an image belongs; what says it in full goes before."""
    scheduler = (spec.get("router") or {}).get("scheduler") or {}
    image = scheduler.get("image")
    if not image:
        return dict(spec)
    template = merged({"containers": [{"name": presets.MAIN, "image": image}]}, scheduler.get("template") or {})
    rest = {name: value for name, value in scheduler.items() if name != "image"}
    return {**spec, "router": {**spec["router"], "scheduler": {**rest, "template": template}}}


def _config(name: str, configs: Configs, context: PresetContext) -> Object:
    if name not in configs:
        where = f"{context.names.namespace} and {context.settings.system_namespace}"
        raise CombineError(
            "ConfigNotFound",
            f"spec.baseRefs names LLMInferenceServiceConfig {name!r}, which is in neither of the namespaces {where}: "
            "create it, or take the name away",
        )
    return _shorthand(_shaped(configs[name], f"LLMInferenceServiceConfig {name}"))


def _preset(name: str, configs: Configs, context: PresetContext) -> tuple[str, Object]:
    """Return a preset and what it is called: the cluster's own, or else ours."""
    full = f"{context.settings.config_prefix}{name}"
    if full in configs:
        return full, _shorthand(_shaped(configs[full], f"LLMInferenceServiceConfig {full}"))
    return name, presets.preset(name, context)


def _presets(spec: Mapping[str, Any]) -> list[str]:
    router = spec.get("router") or {}
    scheduler, route = router.get("scheduler"), router.get("route")
    names = []
    if scheduler is not None and not _refers((scheduler.get("pool") or {}).get("ref")):
        names.append(presets.SCHEDULER)
    if route is not None and not (route.get("http") or {}).get("refs"):
        names.append(presets.ROUTE)
    staged = spec.get("prefill") is not None
    return [*names, *((presets.PREFILL, presets.DECODE) if staged else (presets.TEMPLATE,))]


def _refers(reference: Any) -> bool:
    return bool(reference and reference.get("name"))


def _over(layers: list[Object]) -> Object:
    whole: Object = {}
    for layer in layers:
        whole = merged(whole, _today(layer))
    return whole


def _today(spec: Object) -> Object:
    """Return a spec with its pool in today's spelling, so that the two can be merged."""
    pool = ((spec.get("router") or {}).get("scheduler") or {}).get("pool") or {}
    if not pool.get("spec"):
        return spec
    scheduler = {**spec["router"]["scheduler"], "pool": {**pool, "spec": pools.current(pool["spec"])}}
    return {**spec, "router": {**spec["router"], "scheduler": scheduler}}


def _variables(context: PresetContext, known: Mapping[str, Any]) -> Object:
    """Return what templates can name."""
    namespace, name = context.settings.gateway
    model = {**(known.get("model") or {})}
    model["name"] = model.get("name") or context.resource.metadata.name
    return {
        "ObjectMeta": context.resource.metadata.model_dump(by_alias=True),
        "Spec": {**known, "model": model},
        "GlobalConfig": {
            "SystemNamespace": context.settings.system_namespace,
            "IngressGatewayNamespace": namespace,
            "IngressGatewayName": name,
            "EnableTLS": context.settings.tls,
            "ModelBasedRoutingHeaderName": "X-Gateway-Model-Name",
            "InferencePoolNamespacedName": f"{context.names.namespace}/{context.names.pool}",
        },
    }


def _read(spec: Object, path: str) -> LLMSpec:
    found = check(LLMSpec, spec, path=path)
    if found.value is None:
        raise CombineError("InvalidRenderedConfig", "; ".join(map(str, found.problems)))
    return found.value


def _check_name(name: str) -> None:
    if len(name) > 63 or not _LABEL.fullmatch(name):
        raise CombineError(
            "InvalidRenderedConfig",
            f"metadata.name {name[:80]!r} cannot be the name of a Service: begin with a letter, use small letters, "
            "digits and hyphens, and at most 63 of them",
        )


def _check_parents(spec: LLMSpec, *, here: str) -> None:
    """Refuse two lists of Gateways that are not the same: a preset's gives way, one that was written does not."""
    http = spec.router.route.http if spec.router and spec.router.route else None
    refs = spec.router.gateway.refs if spec.router and spec.router.gateway else None
    parents = ((http.spec if http else None) or {}).get("parentRefs")
    if not refs or not parents:
        return
    named = {(str(one.get("namespace") or here), str(one.get("name"))) for one in parents}
    if named != {(one.namespace or here, one.name) for one in refs}:
        raise CombineError(
            "InvalidRenderedConfig",
            "spec.router.route.http.spec.parentRefs and spec.router.gateway.refs name different Gateways: take one of "
            "them away",
        )


def _check_whole(spec: LLMSpec) -> None:
    """Refuse what no part can say by itself."""
    router = spec.router
    http = router.route.http if router and router.route else None
    refs = router.gateway.refs if router and router.gateway else None
    if http and http.refs and router and router.gateway is not None and not refs:
        raise CombineError(
            "InvalidRenderedConfig",
            "spec.router.route.http.refs names routes, which have gateways of their own, and spec.router.gateway is "
            "{}: take one of them away, or name the gateways in spec.router.gateway.refs",
        )

"""From an LLMInferenceService and what the cluster can do to its objects. Pure: same in, same out.

Beside the objects it says what must be up (`components`), what follows from the resource and the cluster alone
(`notices`), and what goes beyond the administrator's policy. The certificate is the one object that is not here: it is
made of randomness and time, and `wants_certificate` says that there must be one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pointsman.api.llminferenceservice import LLMInferenceService, LLMSpec
from pointsman.render.envoy.gateway import FailureMode
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Breach, Policy
from pointsman.render.manifests.stack import Component, Notice
from pointsman.render.serving import certificates, limits, route, scheduler, workload
from pointsman.render.serving.combine import Combined, Configs, combine
from pointsman.render.serving.names import ServiceNames
from pointsman.render.serving.parts import Object
from pointsman.render.serving.presets import MAIN, PresetContext
from pointsman.render.serving.settings import ServingSettings
from pointsman.render.serving.simulated import simulated

HONOURED = "SpecHonoured"
SIMULATED = "Simulated"
SHORTHAND = "Shorthand"
_PLAIN, _LIMITS = ServingSettings(), Policy()


@dataclass(frozen=True, kw_only=True)
class LLMStack:
    """Everything that a service stands for."""

    names: ServiceNames
    objects: tuple[Object, ...]
    components: tuple[Component, ...]
    notices: tuple[Notice, ...]
    breaches: tuple[Breach, ...]
    applied: tuple[str, ...] = ()
    wants_certificate: bool = False
    issuer: tuple[str, str] | None = None
    picks: bool = False
    """Whether there is a picker of ours."""
    picker_tls: bool = False
    pool: str = ""
    """The pool that must be accepted, if the route leads to one."""
    routes: tuple[str, ...] = ()
    """The HTTPRoutes that lead here, ours or those that the service names."""
    gateways: tuple[tuple[str, str], ...] = ()
    """Namespace and name of the Gateways that they are on."""
    gateway_url: str = ""
    """Where requests go in, when the gateway is our own."""
    failure_mode: FailureMode = "FailOpen"
    config_ref: tuple[str, str] | None = None
    """Name and key of the ConfigMap that has the picker's configuration."""
    has_pools: bool = True
    """Whether the cluster knows what a pool is."""

    @property
    def front(self) -> str:
        """The Service in front of the model servers."""
        return self.names.workload_service


@dataclass(frozen=True, kw_only=True)
class ServingCluster:
    """What a service is rendered for."""

    facts: Facts
    settings: ServingSettings = _PLAIN
    policy: Policy = _LIMITS
    simulate: bool = False
    """Whether model servers are simulated."""


def llm_stack(
    resource: LLMInferenceService,
    document: Mapping[str, Any],
    cluster: ServingCluster,
    *,
    configs: Configs,
    picker_configs: Mapping[str, str] | None = None,
) -> LLMStack:
    """Return the whole of a service; `picker_configs` has the ConfigMap key that it refers to, under `name/key`.

    Raises CombineError when there is no one spec to act on.
    """
    names = ServiceNames(service=resource.metadata.name, namespace=resource.metadata.namespace)
    context = PresetContext(
        resource=resource,
        names=names,
        settings=cluster.settings,
        facts=cluster.facts,
        policy=cluster.policy,
        sidecar=not cluster.simulate,
    )
    combined = combine(context, document, configs)
    if resource.stopped:
        return LLMStack(names=names, objects=(), components=(), notices=(), breaches=(), applied=combined.applied)
    spec, replaced = combined.spec, list[str]()
    if cluster.simulate:
        whole = resource.model_copy(update={"spec": spec})
        spec, replaced = simulated(whole, spec, names=names, facts=cluster.facts)
    return _rendered(context, replace(combined, spec=spec), replaced, picker_configs or {})


def _config_ref(spec: LLMSpec) -> tuple[str, str] | None:
    """Return name and key of the ConfigMap that has the picker's configuration."""
    wanted = spec.router.scheduler.config if spec.router and spec.router.scheduler else None
    return (wanted.ref.name, wanted.ref.key) if wanted and wanted.ref else None


def _rendered(
    context: PresetContext, combined: Combined, replaced: list[str], picker_configs: Mapping[str, str]
) -> LLMStack:
    spec, facts, names = combined.spec, context.facts, context.names
    wanted = spec.router.scheduler if spec.router else None
    given = wanted.pool.ref.name if wanted and wanted.pool and wanted.pool.ref else ""
    picks = wanted is not None and not given
    https = workload.speaks_tls(spec)
    own = route.has_own_gateway(context, spec)
    documents = workload.render(context, spec, headless=own)
    picker_tls, mode = False, "FailOpen"
    if wanted is not None and picks:
        reference = _config_ref(spec)
        config = picker_configs.get("/".join(reference), "") if reference else ""
        made = scheduler.render(context, wanted, staged=spec.prefill is not None, https=https, config=config)
        documents += made
        (pod,) = (each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment")
        picker_tls = scheduler.serves_tls(pod)
        mode = scheduler.failure_mode(wanted)
    if own:
        documents += route.own_gateway(
            context, picks=picks, picker_tls=picker_tls, https=https, failure_mode=_mode(mode)
        )
    documents += route.http_route(context, spec)
    issuer = certificates.issuer_of(context.resource) if context.settings.tls else None
    if issuer and facts.cert_manager:
        asked = certificates.wanted_names(names, domain=facts.domain)
        documents.append(certificates.request(names, asked, issuer=issuer))
    routed = spec.router is not None and spec.router.route is not None
    refs = spec.router.route.http.refs if spec.router and spec.router.route and spec.router.route.http else None
    return LLMStack(
        names=names,
        objects=tuple(sorted(documents, key=objects.turn)),
        components=tuple(_components(context, spec, picks=picks, own=own)),
        notices=tuple(_notices(context, combined, replaced, issuer=issuer)),
        breaches=limits.breaches(spec, context.policy),
        applied=combined.applied,
        wants_certificate=context.settings.tls,
        issuer=issuer,
        picks=picks,
        picker_tls=picker_tls,
        pool=(given or names.pool) if wanted is not None and routed and facts.gateway_api else "",
        routes=tuple(each.name for each in refs) if refs else (names.route,) if routed and facts.gateway_api else (),
        gateways=_gateways(context, spec) if routed and facts.gateway_api and not refs else (),
        gateway_url=route.own_url(context) if own else "",
        failure_mode=_mode(mode),
        config_ref=_config_ref(spec) if picks else None,
        has_pools=facts.inference_pool,
    )


def _mode(text: str) -> Literal["FailOpen", "FailClose"]:
    return "FailOpen" if text == "FailOpen" else "FailClose"


def _gateways(context: PresetContext, spec: LLMSpec) -> tuple[tuple[str, str], ...]:
    here = context.names.namespace
    return tuple((str(each.get("namespace") or here), str(each["name"])) for each in route.parents(context, spec))


def _components(context: PresetContext, spec: LLMSpec, *, picks: bool, own: bool) -> list[Component]:
    names = context.names
    found = [_servers("MainWorkloadReady", names.workload, spec.replicas)]
    if spec.prefill is not None:
        found.append(_servers("PrefillWorkloadReady", names.prefill, spec.prefill.replicas))
    if picks and spec.router and spec.router.scheduler:
        # Of several, the one that leads.
        replicas = spec.router.scheduler.replicas or 1
        found.append(Component(condition="SchedulerWorkloadReady", name=names.picker, replicas=replicas))
    if own:
        found.append(Component(condition="GatewaysReady", name=names.gateway))
    return found


def _servers(condition: str, name: str, replicas: int | None) -> Component:
    """Return servers as a component: three of four are enough, as they are for a Deployment that rolls."""
    count = 1 if replicas is None else replicas
    return Component(condition=condition, name=name, replicas=count, needed=count - count // 4)


def _notices(
    context: PresetContext, combined: Combined, replaced: list[str], *, issuer: tuple[str, str] | None
) -> list[Notice]:
    found = [_honoured(context, combined)]
    if replaced:
        found.append(Notice(type=SIMULATED, holds=True, reason="InPlaceOfServers", message="; ".join(replaced)))
    if issuer and not context.facts.cert_manager:
        message = (
            f"an annotation names {issuer[0]} {issuer[1]}, and cert-manager is not installed: install it, or take the "
            "annotation away to have a self-signed certificate"
        )
        found.append(Notice(type="CertificateReady", holds=False, reason="CertManagerMissing", message=message))
    return found


def _honoured(context: PresetContext, combined: Combined) -> Notice:
    said = []
    if combined.unacted:
        fields = ", ".join(combined.unacted[:20])
        said.append(f"these fields are kept and not acted on: {fields}; KServe's controller may know them")
    uri = combined.spec.model.uri if combined.spec.model else ""
    unbrought = uri and not uri.startswith(("hf://", "pvc://")) and _brings(combined.spec)
    if unbrought:
        said.append(f"nothing brings spec.model.uri {uri[:200]!r}: use hf:// or pvc://, or a template that fetches it")
    scheduler = context.resource.spec.router.scheduler if context.resource.spec.router else None
    if scheduler is not None and scheduler.image:
        said.append(
            "spec.router.scheduler.image is taken as the image of the picker's container; KServe drops it: write "
            f"spec.router.scheduler.template.containers[name={MAIN}].image"
        )
    if combined.unacted or unbrought:
        return Notice(type=HONOURED, holds=False, reason="FieldsNotActedOn", message="; ".join(said))
    if said:
        return Notice(type=HONOURED, holds=True, reason=SHORTHAND, message="; ".join(said))
    return Notice(type=HONOURED, holds=True, reason="Honoured", message="every field is acted on")


def _brings(spec: LLMSpec) -> bool:
    return spec.storage_initializer is None or spec.storage_initializer.enabled is not False

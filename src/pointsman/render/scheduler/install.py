"""From a SchedulerInstall and its surroundings to everything that it stands for. Pure: same in, same out.

What another resource of this operator has made already (the Service in front of simulators, a rule for it, a pool) is
used and not made again: `Surroundings.taken` says which. Beside the objects an `Installed` has the way by which picks
are followed, what must be up (`Component`), what could not be done and why (`Notice`), and what the administrator does
not allow (`breaches`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pointsman.api.scheduler import (
    ProxyService,
    SchedulerGateway,
    SchedulerInstall,
    SchedulerPicker,
    SchedulerSpec,
    Way,
)
from pointsman.api.simulator import PICKER_PORTS, GatewayInstance
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.gateway import Gateway
from pointsman.render.manifests import mesh, objects, proxy
from pointsman.render.manifests import picker as pickers
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.policy import Breach, Policy
from pointsman.render.manifests.stack import Component, Notice, Piece
from pointsman.render.scheduler import patches, picker, routes
from pointsman.render.scheduler.limits import breaches
from pointsman.render.scheduler.places import GATEWAY_COMPONENT, Places, picks, places_of
from pointsman.render.scheduler.routes import POOLED, RouteProblem
from pointsman.render.scheduler.ways import Abilities, Choice, choose

Taken = tuple[str, str, str]
"""Kind, namespace and name of an object."""
_PLAIN = Policy()
_EJECT = {
    "consecutive5xxErrors": 1,
    "consecutiveGatewayErrors": 1,
    "interval": "1s",
    "baseEjectionTime": "10s",
    "maxEjectionPercent": 100,
    "minHealthPercent": 0,
}


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is there already, as far as an install depends on it."""

    facts: Facts = field(default_factory=Facts)
    gateway: Object | None = None
    """The Gateway that the route names, when it exists."""
    route: Object | None = None
    """Our route, when it exists …"""
    probe: Object | None = None
    """… and the one that asks whether pools are understood."""
    others: tuple[Object, ...] = ()
    """All other HTTPRoutes."""
    slices: tuple[Object, ...] = ()
    """Where the picker's Service finds its Pods."""
    pool: Object | None = None
    """The pool, when it is not ours."""
    taken: frozenset[Taken] = frozenset()
    """What others of this operator's resources have made, and is used as it is."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Everything that a resource stands for."""

    places: Places
    choice: Choice | None
    """None where nobody picks, or nothing leads to who was picked."""
    objects: tuple[Object, ...]
    components: tuple[Component, ...]
    notices: tuple[Notice, ...]
    gateway_url: str
    breaches: tuple[Breach, ...] = ()

    @property
    def way(self) -> Way | None:
        return self.choice.way if self.choice else None


def install(resource: SchedulerInstall, around: Surroundings, policy: Policy = _PLAIN) -> Installed:
    """Return the whole install of a resource in such surroundings, under such an administrator."""
    spec, places = resource.spec, places_of(resource)
    choice = choose(spec, _abilities(spec, places, around)) if picks(spec) else None
    pieces = [
        _picker(spec, places, around, policy),
        _service(spec, choice, places, around),
        _gateway(spec, choice, places, around),
        _routing(spec, choice, places, around),
        _balancing(spec, places, around),
        _following(spec, choice, places, around),
    ]
    made = [places.marked(one) for piece in pieces for one in piece.objects]
    return Installed(
        places=places,
        choice=choice,
        objects=tuple(sorted(made, key=objects.turn)),
        components=tuple(one for piece in pieces for one in piece.components),
        notices=tuple(one for piece in pieces for one in piece.notices),
        gateway_url=next((piece.url for piece in pieces if piece.url), ""),
        breaches=breaches(resource, places, policy),
    )


def _abilities(spec: SchedulerSpec, places: Places, around: Surroundings) -> Abilities:
    facts = around.facts
    named = (around.gateway or {}).get("spec", {}).get("gatewayClassName")
    name = spec.gateway.class_name if spec.gateway and spec.gateway.enabled else named or SchedulerGateway().class_name
    told = routes.understanding(around.route, around.probe)
    return Abilities(
        gateway_api=facts.gateway_api,
        gateway_class=name,
        accepted=name in facts.gateway_classes,
        istio=name in facts.istio_classes,
        pools=facts.inference_pool,
        understood=None if told is None else told.holds,
        refusal=told.message if told else "",
        filters=facts.envoy_filter,
        split=places.is_split,
    )


def _picker(spec: SchedulerSpec, places: Places, around: Surroundings, policy: Policy) -> Piece:
    config = spec.epp
    if config is None or not config.enabled:
        return Piece()
    facts = around.facts
    pooled = facts.inference_pool
    made = picker.render(spec, config, places=places, facts=facts, policy=policy, pooled=pooled)
    needed = min(config.replicas, 1)
    component = Component(condition="EPPReady", name=places.picker, replicas=config.replicas, needed=needed)
    notices = [_discovery(places, pooled=pooled)]
    if pooled:
        pool, told = _pool(config, places, around)
        made += pool
        notices.append(told)
    return Piece(made, [component], notices)


def _discovery(places: Places, *, pooled: bool) -> Notice:
    text = f"the picker follows InferencePool {places.pools.namespace}/{places.pool}"
    if not pooled:
        text = "the picker follows Pods by their labels: InferencePool is not defined (pointsman crds install)"
    return Notice(type="Discovery", holds=True, reason="InferencePool" if pooled else "Selector", message=text)


def _pool(config: SchedulerPicker, places: Places, around: Surroundings) -> tuple[list[Object], Notice]:
    where = f"{places.pools.namespace}/{places.pool}"
    if around.pool is not None:
        return [], _existing(config, around.pool, where, places)
    made = pickers.pool(
        config, places.selector, places.target, name=places.pool, picker=places.picker, names=places.pools
    )
    return [made], Notice(type="Pool", holds=True, reason="Made", message=f"InferencePool {where} is the operator's")


def _existing(config: SchedulerPicker, pool: Object, where: str, places: Places) -> Notice:
    """Say of somebody else's pool whether it asks our picker."""
    asked = pool.get("spec", {}).get("endpointPickerRef", {})
    name, number = asked.get("name"), (asked.get("port") or {}).get("number")
    if (name, number) == (places.picker, config.port):
        text = f"InferencePool {where} is another's, and used as it is"
        return Notice(type="Pool", holds=True, reason="Existing", message=text)
    text = f"InferencePool {where} is another's and asks Service {name}, port {number}: set its endpointPickerRef to "
    return Notice(
        type="Pool",
        holds=False,
        reason="OtherPicker",
        message=f"{text}{places.picker}, port {config.port}, or delete it",
    )


def _service(spec: SchedulerSpec, choice: Choice | None, places: Places, around: Surroundings) -> Piece:
    wanted, names = spec.proxy_service or ProxyService(), places.there
    ports = [objects.port("http", places.port, places.target, protocol="http")]
    headless = []
    if choice and choice.way == "OwnEnvoy":
        name, number = f"{places.service}-pods", [objects.port("http", places.target, places.target, protocol="http")]
        headless = [
            objects.service(name, names=names, labels={}, selector=places.selector, ports=number, headless=True)
        ]
    if ("Service", names.namespace, places.service) in around.taken:
        text = f"Service {names.namespace}/{places.service} is another resource's, and used as it is"
        return Piece(headless, notices=[Notice(type="ProxyService", holds=True, reason="Existing", message=text)])
    if not wanted.enabled:
        return Piece(headless)
    made = objects.service(places.service, names=names, labels={}, selector=places.selector, ports=ports)
    text = f"Service {names.namespace}/{places.service} is the operator's"
    return Piece([made, *headless], notices=[Notice(type="ProxyService", holds=True, reason="Made", message=text)])


def _gateway(spec: SchedulerSpec, choice: Choice | None, places: Places, around: Surroundings) -> Piece:
    wanted, facts = spec.gateway, around.facts
    if wanted is None or not wanted.enabled:
        named = bool(spec.routing and spec.routing.enabled and facts.gateway_api)
        return Piece(components=[_listening(places)] if named else [])
    if choice and choice.way == "OwnEnvoy":
        return _own_envoy(spec, wanted, places, facts)
    where = f"{places.here.namespace}.svc.{facts.domain}:{wanted.listener_port}"
    url = f"http://{wanted.name}-{wanted.class_name}.{where}"
    if not facts.gateway_api:
        text = "the Gateway API is not installed: install its definitions, or set routing.way to OwnEnvoy"
        return Piece(notices=[Notice(type="GatewayReady", holds=False, reason="GatewayAPIMissing", message=text)])
    made = routes.gateway(wanted, places=places)
    # The route may name another Gateway than this one; that is the one on which requests depend.
    return Piece([made], [_listening(places)], url=url)


def _listening(places: Places) -> Component:
    return Component(condition="GatewayReady", name=places.gateway, kind="Gateway")


def _own_envoy(spec: SchedulerSpec, wanted: SchedulerGateway, places: Places, facts: Facts) -> Piece:
    config = spec.epp or SchedulerPicker()
    tls = pickers.serves_tls(config)
    pods = Address(f"{places.service}-pods.{places.there.namespace}.svc.{facts.domain}", places.target)
    envoy = Gateway(
        listen=Address("0.0.0.0", proxy.LISTEN),  # noqa: S104 - a Pod serves on all its addresses
        admin=Address("127.0.0.1", proxy.ADMIN),
        ready=Address("0.0.0.0", proxy.READY),  # noqa: S104 - kubelet asks the Pod's address
        pickers=(Address(f"{places.picker}.{places.here.namespace}.svc.{facts.domain}", PICKER_PORTS["grpc"]),),
        picker_tls=tls,
        picker_health_port=None if tls else PICKER_PORTS["health"],
        pool=proxy.pool(spec.destination_rule, pods),
        failure_mode=config.failure_mode,
    )
    instance = GatewayInstance(
        enabled=True,
        replicas=wanted.replicas,
        image=wanted.image,
        port=wanted.listener_port,
        resources=wanted.resources,
    )
    made = proxy.render(
        envoy,
        instance,
        pull=spec.image_pull_policy,
        kind="standard",
        name=wanted.name,
        names=places.here,
        facts=facts,
        component=GATEWAY_COMPONENT,
    )
    needed = min(wanted.replicas, 1)
    component = Component(condition="GatewayReady", name=wanted.name, replicas=wanted.replicas, needed=needed)
    url = f"http://{wanted.name}.{places.here.namespace}.svc.{facts.domain}:{wanted.listener_port}"
    return Piece(made, [component], url=url)


def _routing(spec: SchedulerSpec, choice: Choice | None, places: Places, around: Surroundings) -> Piece:
    wanted, facts = spec.routing, around.facts
    own = choice is not None and choice.way == "OwnEnvoy"
    if wanted is None or not wanted.enabled or own or not facts.gateway_api:
        return Piece()
    pooled = wanted.backend_type == "InferencePool"
    made = [routes.route(choice.way if choice else None, places=places, pooled=pooled)]
    if choice and choice.way == "FilterPatch" and pooled and facts.inference_pool and wanted.way is None:
        made.append(routes.probe(places=places))
    component = Component(condition="RouteReady", name=places.route, kind="HTTPRoute")
    grants = routes.grants(made, places=places) if facts.reference_grant else []
    return Piece([*made, *grants], [component])


def _balancing(spec: SchedulerSpec, places: Places, around: Surroundings) -> Piece:
    wanted, facts = spec.destination_rule, around.facts
    if wanted is None or not wanted.enabled:
        return Piece()
    name = f"{places.service}-lb"
    if not facts.istio:
        text = f"Istio is not installed, so there is no DestinationRule {name}: install it, or remove destinationRule"
        return Piece(notices=[Notice(type="LoadBalancing", holds=False, reason="IstioMissing", message=text)])
    if ("DestinationRule", places.there.namespace, name) in around.taken:
        text = f"DestinationRule {places.there.namespace}/{name} is another resource's, and used as it is"
        return Piece(notices=[Notice(type="LoadBalancing", holds=True, reason="Existing", message=text)])
    text = f"DestinationRule {name} sets {wanted.algorithm} for the proxy Service; it says nothing of routes to a pool"
    made = mesh.destination_rule(wanted, names=places.there, facts=facts)
    return Piece([made], notices=[Notice(type="LoadBalancing", holds=True, reason="DestinationRule", message=text)])


def _following(spec: SchedulerSpec, choice: Choice | None, places: Places, around: Surroundings) -> Piece:
    """Return what makes the gateway ask, obey and notice, and what is said of it."""
    config, facts = spec.epp, around.facts
    if choice is None or config is None:
        return Piece()
    told = [Notice(type="PickHonoured", holds=choice.way is not None, reason=choice.reason, message=choice.message)]
    if choice.way in (None, "OwnEnvoy"):
        return Piece(notices=told)
    made: list[Object] = []
    asked = places.here
    if choice.way == "EndpointSlice":
        asked = places.pools
        made += picker.mirror(config, around.slices, places=places)
    elif choice.way == "RoutePatch" and places.is_split:
        # The pool's own picker is not asked, but it must be there for the pool to be in order.
        made += picker.mirror(config, around.slices, places=places)
    if facts.istio:
        policy: Object = {"outlierDetection": _EJECT}
        if pickers.serves_tls(config):
            policy["tls"] = {"mode": "SIMPLE", "insecureSkipVerify": True}
        made.append(mesh.traffic_rule(places.picker, places.picker, policy, names=asked, facts=facts))
    found = routes.troubles(around.others, places=places) if choice.way in POOLED else []
    patched = bool(spec.envoy_filter and spec.envoy_filter.enabled and facts.envoy_filter)
    if patched:
        made.append(_patched(spec, config, choice.way, found, places=places, around=around))
    told += [_guarded(patched=patched, ejected=facts.istio), *_honoured(found, patched=patched)]
    return Piece(made, notices=told)


def _patched(
    spec: SchedulerSpec,
    config: SchedulerPicker,
    way: Way | None,
    found: Sequence[RouteProblem],
    *,
    places: Places,
    around: Surroundings,
) -> Object:
    wanted, facts = spec.envoy_filter, around.facts
    assert wanted is not None and way is not None
    names = places.pools if way == "EndpointSlice" else places.here
    host = f"{places.picker}.{names.namespace}.svc.{facts.domain}"
    cluster = f"outbound|{config.port}||{host}"
    pooled = spec.routing is not None and spec.routing.backend_type == "InferencePool"
    ours = patches.route_names(routes.route(way, places=places, pooled=pooled))
    own = f"llm-d.ext-proc.{places.home}.{places.here.stack}"
    made = [
        *patches.forget(ours),
        patches.guard(host, config.port, health=picker.checks_health(config)),
    ]
    if way in ("RoutePatch", "FilterPatch"):
        made += patches.ask(way, ours, cluster=cluster, own=own, mode=config.failure_mode)
    if way == "FilterPatch":
        made.append(patches.obey(f"{places.service}.{places.there.namespace}.svc.{facts.domain}", places.port))
    repairs = [one.repair for one in found if one.repair]
    made += patches.ask("RoutePatch", repairs, cluster=cluster, own=own, mode=config.failure_mode)
    return patches.envoy_filter(wanted.name, made, places=places, selector=wanted.workload_selector)


def _guarded(*, patched: bool, ejected: bool) -> Notice:
    """Say how far a picker that is dead or hung is noticed."""
    kind = "PickerGuard"
    if patched:
        text = "a picker that is dead or hung is noticed by health checks, keepalive and outlier detection"
        return Notice(type=kind, holds=True, reason="Guarded", message=text)
    half = "outlier detection notices a picker that is dead" if ejected else "nobody notices a picker that is dead"
    text = f"{half}, and a request to one that hangs waits until the client gives up: set envoyFilter.enabled"
    return Notice(type=kind, holds=False, reason="EnvoyFilterDisabled", message=text)


def _honoured(found: Sequence[RouteProblem], *, patched: bool) -> list[Notice]:
    """Say which routes of others to the pool do not ask its picker."""
    left = [one for one in found if not (patched and one.repair)]
    repaired = [one.route for one in found if patched and one.repair]
    if left:
        text = "; ".join(one.message for one in left)
        return [Notice(type="RoutesHonoured", holds=False, reason=left[0].reason, message=text)]
    if repaired:
        text = (
            f"a CORS filter would keep the picker from being asked; the EnvoyFilter puts it back: {', '.join(repaired)}"
        )
        return [Notice(type="RoutesHonoured", holds=True, reason="Repaired", message=text)]
    return [
        Notice(type="RoutesHonoured", holds=True, reason="NoTrouble", message="every route to the pool asks its picker")
    ]

"""Look at a cluster once, from end to end: objects, then whatever they lead to, then requests through the gateway."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from pointsman.core.errors import find_ours
from pointsman.core.kinds import Kind, Object, key_of
from pointsman.doctor import envoy
from pointsman.doctor.cluster.facts import Cluster, Counts, Focus, Health, Port, Probe, Proxy, Right
from pointsman.doctor.cluster.objects import at, container_ports, each, number, pod_ready
from pointsman.doctor.cluster.path import Path, rights_needed, trace
from pointsman.doctor.gather import doors, picks, requests
from pointsman.doctor.gather.objects import allowed, list_all
from pointsman.doctor.gather.pages import get, get_json
from pointsman.doctor.gather.reach import Away, Reach
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, Unreachable
from pointsman.render.envoy.addresses import Address, read_address

_ADMINS = (15000, 19000)
_OWN_ADMINS = (19001, 19000, 9901)
_MOST_PODS = 3
_PROMPT = "The doctor asks the same question again and again, to see where it goes. " * 8
_TOKEN_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the doctor was asked to do."""

    focus: Focus = field(default_factory=Focus)
    envoy: str = ""
    """Where the gateway's admin is, when whoever asks knows better."""
    url: str = ""
    """Where requests are sent, when whoever asks knows better."""
    model: str = ""
    reader: str = ""
    """`namespace/name` of an account whose token may read the picker's pages."""
    probes: int = 4


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What was seen, and the pages that it was read from."""

    cluster: Cluster
    pages: dict[str, Any] = field(default_factory=dict)


async def gather(client: Client, reach: Reach, wish: Wish, *, now: Callable[[], datetime], nonce: str) -> Gathered:
    """Return what can be seen."""
    try:
        objects = await list_all(client, namespace=wish.focus.namespace)
    except (Unreachable, ApiError, ExceptionGroup) as error:
        ours = find_ours(error)
        if ours is None:
            raise
        return Gathered(cluster=Cluster(now=now(), focus=wish.focus, unreachable=str(ours)))
    pages: dict[str, Any] = {}
    path = trace(objects, wish.focus)
    admin, proxy, why = await _envoy(reach, path, wish.envoy, pages)
    path = trace(objects, wish.focus, proxy)
    async with asyncio.TaskGroup() as group:
        ports = group.create_task(_ports(reach, path))
        health = group.create_task(_health(reach, path))
        rights = group.create_task(_rights(client, path, rights_needed(path, objects)))
    seen = Cluster(
        now=now(),
        objects=objects,
        focus=wish.focus,
        proxy=proxy,
        proxy_why=why,
        ports=ports.result()[0],
        ports_why=ports.result()[1],
        health=health.result(),
        rights=rights.result(),
    )
    return Gathered(cluster=await _probed(seen, path, client, reach, wish, admin=admin, nonce=nonce), pages=pages)


async def _envoy(
    reach: Reach, path: Path, given: str, pages: dict[str, Any]
) -> tuple[Address | None, Proxy | None, str]:
    """Return where the admin is, what it says, or why it does not."""
    if given:
        admin = read_address(given)
        proxy = await _proxy(admin, pages)
        return admin, proxy, "" if proxy else f"{admin} does not answer"
    why = "no Pod of the gateway is ready"
    for pod in [one for one in path.gateway_pods if pod_ready(one)][:1]:
        for port in _ADMINS if path.gateway is not None else _OWN_ADMINS:
            try:
                admin = await reach.address(pod, port)
            except Away as error:
                why = f"port {port} of Pod {key_of(pod)}: {error}"
                continue
            if proxy := await _proxy(admin, pages):
                return admin, proxy, ""
            why = f"port {port} of Pod {key_of(pod)} has no config_dump"
    return None, None, why


def _first_port(pod: Object) -> int:
    """Return the first port that a Pod declares and that is none of an admin's."""
    return next((port for port in container_ports(pod).values() if port not in (*_ADMINS, *_OWN_ADMINS)), 80)


async def _proxy(admin: Address, pages: dict[str, Any]) -> Proxy | None:
    dump = await get_json(admin, "/config_dump")
    clusters = await get_json(admin, "/clusters?format=json")
    if dump is None or clusters is None:
        return None
    pages |= {"config_dump.json": dump, "clusters.json": clusters}
    return Proxy(
        admin=str(admin),
        filters=envoy.read_filters(dump),
        routes=envoy.read_routes(dump),
        upstreams=envoy.read_upstreams(dump),
        members=envoy.read_clusters(clusters),
        rejected=envoy.read_rejected(dump),
    )


def _running(path: Path) -> list[Object]:
    return [pod for pod in path.picker_pods if pod_ready(pod)][:_MOST_PODS]


async def _ports(reach: Reach, path: Path) -> tuple[tuple[Port, ...], str]:
    """Return how the picker's ports present themselves, and why one that cannot be reached from here is left out."""
    found, why = [], ""
    for pod in _running(path):
        named = f"{at(pod, 'status', 'podIP')}:{path.port('grpc-port')}"
        try:
            found.append(await doors.knock(await reach.address(pod, path.port("grpc-port")), named=named))
        except Away as error:
            if error.refused:
                found.append(Port(address=named, reached=False, why=str(error)))
            why = str(error)
    return tuple(found), why


async def _health(reach: Reach, path: Path) -> tuple[Health, ...]:
    found = []
    for pod in _running(path):
        named = f"{at(pod, 'status', 'podIP')}:{path.port('grpc-health-port')}"
        try:
            found.append(await doors.health(await reach.address(pod, path.port("grpc-health-port")), named=named))
        except Away as error:
            if error.refused:
                found.append(Health(address=named, status="", why=str(error)))
    return tuple(found)


async def _rights(client: Client, path: Path, wanted: list[Right]) -> dict[Right, bool | None]:
    account = path.account
    return {right: await allowed(client, right, account=account) for right in wanted} if account else {}


# Requests


async def _probed(
    seen: Cluster, path: Path, client: Client, reach: Reach, wish: Wish, *, admin: Address | None, nonce: str
) -> Cluster:
    try:
        target = await target_for(path, reach, wish)
    except Away as error:
        return replace(seen, probes_why=f"the gateway cannot be reached from here: {error}")
    if target is None:
        return replace(seen, probes_why="no Gateway, route or ready Pod of the gateway to send one to")
    token = await _token(client, wish.reader)
    pages = await _metrics(reach, path)
    before = await _counts(admin)
    probes: list[Probe] = []
    why = ""
    for _ in range(wish.probes):
        probe, why = await _probe(target, path, pages, token=token, admin=admin, prompt=f"{nonce} {_PROMPT}")
        probes.append(probe)
        if probe.status != 200:  # else it would only be waited for once more
            break
    return replace(seen, before=before, after=await _counts(admin), probes=tuple(probes), pick_why=why)


async def target_for(path: Path, reach: Reach, wish: Wish) -> requests.Target | None:
    """Return where requests are sent; None when there is nowhere. Raises Away."""
    ready = [pod for pod in path.gateway_pods if pod_ready(pod)]
    if wish.url:
        address = read_address(wish.url)
    elif not ready or (path.route is None and path.own_envoy is None):
        return None
    else:
        port = number(requests.listener_of(path), "port") or _first_port(ready[0])
        address = await reach.address(ready[0], port)
    return requests.target_of(path, address, model=wish.model or await _model(path, reach))


async def _model(path: Path, reach: Reach) -> str:
    """Return a model that is served, asked of a server itself."""
    wanted = number((each(path.pool, "spec", "targetPorts") or [{}])[0], "number")
    for pod in [one for one in path.servers if pod_ready(one)][:1]:
        port = wanted or _first_port(pod)
        try:
            page = await get_json(await reach.address(pod, port), "/v1/models")
        except Away:
            break
        return requests.find_model(page) or "random"
    return "random"


async def _probe(
    target: requests.Target, path: Path, pages: list[Address], *, token: str, admin: Address | None, prompt: str
) -> tuple[Probe, str]:
    known = await picks.look(pages, token=token)
    counted = await _members(admin)
    sent = await requests.send(target, prompt)
    probe = sent.probe
    after = await picks.look(pages, token=token)
    picked = picks.difference(known, after, request=sent.request)
    if picked:
        picked = requests.name_of(path.servers, picked)
    answered = probe.answered
    if not answered and probe.status == 200:
        rose = [host for host, count in (await _members(admin)).items() if count > counted.get(host, 0)]
        served = {str(at(pod, "status", "podIP")) for pod in path.servers}
        mine = [host for host in rose if host.rpartition(":")[0] in served]
        answered = requests.name_of(path.servers, mine[0]) if len(mine) == 1 else ""
    return replace(probe, picked=picked, answered=answered), after.why


async def _metrics(reach: Reach, path: Path) -> list[Address]:
    found = []
    for pod in _running(path):
        try:
            found.append(await reach.address(pod, path.port("metrics-port")))
        except Away:
            continue
    return found


async def _counts(admin: Address | None) -> Counts | None:
    clusters = await get_json(admin, "/clusters?format=json") if admin else None
    stats = await get(admin, "/stats?filter=ext_proc") if admin else None
    if clusters is None or stats is None:
        return None
    counters = envoy.read_counters(stats.body.decode(errors="replace"))
    return Counts(asked=counters, requests=envoy.read_requests(clusters))


async def _members(admin: Address | None) -> dict[str, int]:
    clusters = await get_json(admin, "/clusters?format=json") if admin else None
    return envoy.read_member_requests(clusters)


async def _token(client: Client, reader: str) -> str:
    """Return a token of the reader's account that lasts for minutes; nothing when none is named or it is refused."""
    namespace, _, name = reader.rpartition("/")
    if not name:
        return ""
    path = Kind("", "v1", "ServiceAccount", "serviceaccounts").path(namespace, name, subresource="token")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    try:
        answer = await client.request("POST", path, body=body)
    except ApiError:
        return ""
    return str(at(msgspec.json.decode(answer), "status", "token") or "")

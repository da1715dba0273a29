"""SchedulerInstalls on a real API server: objects in two namespaces, the way that is chosen, drift, deletion, truth.

kwok makes the Pods ready and a test says what Istio would say of Gateways and routes; tests/istio has the real one.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.installs import WHOLE, Installs, Istio, istio, namespaces
from tests.cluster.live import written
from tests.cluster.simulators import ON, POD, Site, defined, operator, requests
from tests.cluster.widgets import quiet
from tests.waiting import eventually

from pointsman.api import SCHEDULER_INSTALL
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.kube import Key, Kind, Object
from pointsman.operator import kinds
from pointsman.operator.process import OperatorProcess

GATEWAY = "infra-inference-scheduling-inference-gateway"
PICKER = "gaie-inference-scheduling-epp"
PROXY = "gaie-inference-scheduling-proxy"
ROUTE = "llm-d-inference-scheduling"


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


@pytest.fixture
async def process(plane: ControlPlane) -> AsyncIterator[OperatorProcess]:
    async with operator(plane.kubeconfig("admin")) as process:
        yield process


@pytest.fixture
async def installs(site: Site, process: OperatorProcess) -> AsyncIterator[Installs]:
    async with namespaces(site) as installs:
        yield installs
        await installs.clear()


@pytest.fixture
async def mesh(installs: Installs) -> AsyncIterator[Istio]:
    async with istio(installs.client, installs.here.namespace) as speaker:
        yield speaker


def grant(installs: Installs, name: str = "install") -> str:
    return f"t/ReferenceGrant/allow-scheduler-httproute-{installs.here.namespace}-{name}"


def everything(installs: Installs) -> set[str]:
    return {
        *(f"h/{kind}/{PICKER}" for kind in ("ServiceAccount", "NetworkPolicy", "Service", "Deployment")),
        *(f"t/{kind}/{PICKER}" for kind in ("Role", "RoleBinding", "Service", "DestinationRule")),
        f"h/ConfigMap/{PICKER}-config",
        f"t/EndpointSlice/{PICKER}-ipv4",
        "t/InferencePool/gaie-inference-scheduling",
        f"h/Gateway/{GATEWAY}",
        f"h/HTTPRoute/{ROUTE}",
        "h/EnvoyFilter/epp-ext-proc",
        grant(installs),
    }


async def test_from_nothing_to_ready_and_back_to_nothing(installs: Installs, mesh: Istio) -> None:
    await installs.there.create("sims", replicas=2, epp=ON)
    await installs.create(**WHOLE | {"destinationRule": None})
    live = await installs.ready()
    assert live["status"]["way"] == "EndpointSlice"
    await eventually(lambda: served_by(installs, 2))
    await installs.becomes(*everything(installs))
    head, row = [line.split() for line in (await installs.here.kubectl("get", "schedinst")).splitlines()]
    assert (head, row[:3]) == (["NAME", "READY", "WAY", "AGE"], ["install", "True", "EndpointSlice"])
    await installs.delete()
    await installs.becomes()
    await eventually(lambda: gone(installs))
    await installs.there.kubectl("delete", "simulatordeployment", "sims")
    await installs.there.empties()


async def served_by(installs: Installs, count: int) -> None:
    """One endpoint is enough to be ready; the others follow."""
    assert len((await installs.live())["status"]["endpoints"]) == count


async def gone(installs: Installs) -> None:
    assert (await installs.here.kubectl("get", "schedinst", "-o", "name")).strip() == ""


async def test_the_endpoints_of_the_mirror_are_the_pickers_pods(installs: Installs, mesh: Istio) -> None:
    await installs.create(**WHOLE)
    await eventually(lambda: mirrored(installs, 1))
    (pod,) = await pickers(installs)
    await installs.client.delete(POD, Key(installs.here.namespace, pod["metadata"]["name"]))

    async def replaced() -> None:
        (fresh,) = await pickers(installs)
        assert fresh["metadata"]["uid"] != pod["metadata"]["uid"]

    await eventually(replaced)
    await eventually(lambda: mirrored(installs, 1))
    # Another hand in it is put right, and so is its end.
    name = Key(installs.there.namespace, f"{PICKER}-ipv4")
    wrong = {"endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}}]}
    await installs.client.patch(kinds.ENDPOINT_SLICE, name, wrong, how="merge")
    await eventually(lambda: mirrored(installs, 1))
    await installs.client.delete(kinds.ENDPOINT_SLICE, name)
    await eventually(lambda: mirrored(installs, 1))
    await installs.edit(epp={"replicas": 3})
    await eventually(lambda: mirrored(installs, 3))
    await installs.edit(epp={"replicas": 0})
    await eventually(lambda: mirrored(installs, 0))


async def pickers(installs: Installs) -> list[Object]:
    found = await installs.here.list(POD, f"app={PICKER}")
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


async def mirrored(installs: Installs, count: int) -> None:
    pods = {one["status"]["podIP"] for one in await pickers(installs) if one["status"].get("podIP")}
    mirror = await installs.there.get(kinds.ENDPOINT_SLICE, f"{PICKER}-ipv4")
    found = {address for one in mirror.get("endpoints") or () for address in one["addresses"]}
    assert len(pods) == count and found == pods, (found, pods)


async def test_istio_is_asked_whether_it_understands_pools(installs: Installs, mesh: Istio) -> None:
    mesh.understands = False
    await installs.there.create("sims", replicas=1)
    await installs.create(**WHOLE)
    await installs.told("PickHonoured", "True", "FilterPatch", words="InferencePool is not enabled")
    live = await installs.ready()
    assert live["status"]["way"] == "FilterPatch"
    assert await backend(installs) == ("Service", PROXY)
    await installs.has(f"h/HTTPRoute/{ROUTE}-probe", f"h/DestinationRule/{PICKER}")
    mesh.understands = True
    await installs.told("PickHonoured", "True", "EndpointSlice")
    await installs.ready()
    assert await backend(installs) == ("InferencePool", "gaie-inference-scheduling")
    assert f"h/HTTPRoute/{ROUTE}-probe" not in await installs.made()
    mesh.understands = False  # and without patches there is no way
    await installs.edit(envoyFilter=None)
    words = "set ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true in the environment of istiod, 1.28 or newer"
    await installs.told("PickHonoured", "False", "InferenceExtensionMissing", words=words)
    await installs.told("Ready", "False", "InvalidKind", words=words)


async def backend(installs: Installs) -> tuple[str, str]:
    live = await installs.here.get(kinds.HTTP_ROUTE, ROUTE)
    (reference,) = live["spec"]["rules"][0]["backendRefs"]
    return reference["kind"], reference["name"]


async def test_what_is_taken_away_is_gone_and_what_others_add_stays(
    installs: Installs, mesh: Istio, process: OperatorProcess
) -> None:
    await installs.create(**WHOLE)
    front = {f"t/Service/{PROXY}", f"t/DestinationRule/{PROXY}-lb"}
    await installs.becomes(*everything(installs), *front)
    await drifts(installs, kinds.ENVOY_FILTER, "epp-ext-proc")
    await drifts(installs, kinds.HTTP_ROUTE, ROUTE)
    await users_change_what_is_theirs(installs)
    await quiet(lambda: requests(process)["PATCH"])
    # Another name takes the place of the old one, and an empty block takes everything along.
    await installs.edit(envoyFilter={"name": "renamed"})
    await installs.becomes(*everything(installs) - {"h/EnvoyFilter/epp-ext-proc"}, *front, "h/EnvoyFilter/renamed")
    await installs.edit(epp={"enabled": False}, envoyFilter=None, routing={"backendType": "Service"})
    grant_ = grant(installs)
    await installs.becomes(f"h/Gateway/{GATEWAY}", f"h/HTTPRoute/{ROUTE}", grant_, *front)
    await installs.edit(routing=None, destinationRule=None, gateway=None)
    await installs.becomes(f"t/Service/{PROXY}")
    await installs.edit(proxyService={"enabled": False})
    await installs.becomes()


async def drifts(installs: Installs, kind: Kind, name: str) -> None:
    """Delete an object and see it come back; the new one has the same words."""
    before = await installs.here.get(kind, name)
    await installs.client.delete(kind, Key(installs.here.namespace, name))

    async def back() -> None:
        now = await installs.here.get(kind, name)
        assert now["metadata"]["uid"] != before["metadata"]["uid"]
        assert now["spec"] == before["spec"]

    await eventually(back)


async def users_change_what_is_theirs(installs: Installs) -> None:
    """A listener and a host of their own stay; a rule in our route is put right."""
    here = installs.here.namespace
    listener = {"name": "tls", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "c"}]}}
    live = await installs.here.get(kinds.GATEWAY, GATEWAY)
    listeners = [*live["spec"]["listeners"], listener]
    await installs.client.patch(kinds.GATEWAY, Key(here, GATEWAY), {"spec": {"listeners": listeners}}, how="merge")
    change: dict[str, Any] = {"spec": {"hostnames": ["mine.example"], "rules": [{"name": "chat"}]}}
    await installs.client.patch(kinds.HTTP_ROUTE, Key(here, ROUTE), change, how="merge")

    async def right() -> None:
        route = (await installs.here.get(kinds.HTTP_ROUTE, ROUTE))["spec"]
        assert route["hostnames"] == ["mine.example"]
        assert len(route["rules"]) == 2 and all("name" not in one for one in route["rules"])
        gateway = (await installs.here.get(kinds.GATEWAY, GATEWAY))["spec"]
        assert [one["name"] for one in gateway["listeners"]] == ["default", "tls"]

    await eventually(right)


async def test_a_resource_may_be_elsewhere_and_a_namespace_may_be_missing(installs: Installs, mesh: Istio) -> None:
    """In its own words: the resource in the model servers' namespace, the scheduler in one that is not there yet."""
    third = Site(installs.here.plane, installs.client, f"{installs.here.namespace}-late")
    home = installs.there.namespace
    await installs.create("far", namespace=home, schedulerNamespace=third.namespace, epp=ON)
    words = f'namespaces "{third.namespace}" not found: create it, or name another'
    await installs.told("Ready", "False", "NamespaceMissing", "far", words=words, namespace=home)
    await installs.client.create(NAMESPACE, {"metadata": {"name": third.namespace}})
    await installs.told("EPPReady", "True", "Available", "far", namespace=home)
    assert f"Deployment/{PICKER}" in await third.made()
    # To another namespace: what was in the old one is gone.
    spec = {"spec": {"schedulerNamespace": home}}
    await installs.client.patch(SCHEDULER_INSTALL, Key(home, "far"), spec, how="merge")
    await third.becomes(set())
    await installs.client.delete(SCHEDULER_INSTALL, Key(home, "far"))
    await installs.becomes()
    await installs.client.delete(NAMESPACE, Key("", third.namespace))


async def test_neighbours(installs: Installs, mesh: Istio) -> None:
    """A name of somebody else is not touched, two installs do not flap, a SimulatorDeployment that comes later wins."""
    there = installs.there.namespace
    mine = {"metadata": {"name": PROXY, "namespace": there}, "spec": {"ports": [{"port": 80}]}}
    await installs.client.create(kinds.SERVICE, mine)
    before = written(await installs.there.get(kinds.SERVICE, PROXY))
    await installs.create(routing=ON, gateway=ON)
    await installs.told("Conflict", "True", "NameTaken", words="or choose another name in the spec")
    await installs.told("Ready", "False", "Conflict")
    assert written(await installs.there.get(kinds.SERVICE, PROXY)) == before
    await installs.client.delete(kinds.SERVICE, Key(there, PROXY))
    names: dict[str, Any] = {"gateway": ON | {"name": "second-gateway"}, "proxyService": {"name": "second"}}
    await installs.create("second", routing=ON | {"httpRouteName": "second"}, **names)
    await installs.has(f"t/Service/{PROXY}", "t/Service/second", grant(installs), grant(installs, "second"))
    await installs.there.create("sims", replicas=1)
    await installs.told("ProxyService", "True", "Existing")
    await installs.there.ready("sims")
    await installs.ready()
    await installs.ready("second")


async def test_routes_of_others_to_the_pool(installs: Installs, mesh: Istio) -> None:
    await installs.create(**WHOLE)
    await installs.told("RoutesHonoured", "True", "NoTrouble")
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "gaie-inference-scheduling"}
    pool["namespace"] = installs.there.namespace
    cors = {"type": "CORS", "cors": {"allowOrigins": ["https://a.example"]}}
    route: dict[str, Any] = {
        "apiVersion": kinds.HTTP_ROUTE.api_version,
        "kind": "HTTPRoute",
        "metadata": {"name": "mine", "namespace": installs.here.namespace},
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": [{"filters": [cors], "backendRefs": [pool]}]},
    }
    await installs.client.create(kinds.HTTP_ROUTE, route)
    await installs.told("RoutesHonoured", "True", "Repaired", words=f"{installs.here.namespace}.mine.0")
    found = str((await installs.here.get(kinds.ENVOY_FILTER, "epp-ext-proc"))["spec"])
    assert f"{installs.here.namespace}.mine.0" in found
    weighted = [{"backendRefs": [pool | {"weight": 1}, pool | {"name": "other", "weight": 1}]}]
    name = Key(installs.here.namespace, "mine")
    await installs.client.patch(kinds.HTTP_ROUTE, name, {"spec": {"rules": weighted}}, how="merge")
    await installs.told("RoutesHonoured", "False", "WeightedPools", words="make a rule for each pool")
    await installs.client.delete(kinds.HTTP_ROUTE, name)
    await installs.told("RoutesHonoured", "True", "NoTrouble")


async def test_without_istio_and_beyond_the_policy(installs: Installs) -> None:
    await installs.there.create("sims", replicas=1)
    await installs.create(**WHOLE | {"destinationRule": None})
    live = await installs.ready()
    assert live["status"]["way"] == "OwnEnvoy"
    await installs.has(f"h/Deployment/{GATEWAY}", f"t/Service/{PROXY}-pods")
    await installs.edit(epp={"image": "evil.example/picker:1"})
    await installs.told("Ready", "False", "LimitExceeded", words="spec.epp.image is evil.example/picker:1")
    await installs.edit(epp={"image": None})
    await installs.ready()


async def test_a_definition_goes_and_comes_while_in_use(installs: Installs, mesh: Istio) -> None:
    mesh.understands = False
    await installs.create(**WHOLE)
    await installs.told("PickHonoured", "True", "FilterPatch")
    name = "envoyfilters.networking.istio.io"
    kept = await installs.client.get(CUSTOM_RESOURCE_DEFINITION, Key("", name))
    await installs.here.kubectl("delete", "crd", name, f"--timeout={DEFINITION_PATIENCE}s")
    words = "EnvoyFilter is not defined: install Istio's definitions"
    await installs.told("PickHonoured", "False", "InferenceExtensionMissing", words=words)
    fresh = {field: kept[field] for field in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name}}
    await installs.client.create(CUSTOM_RESOURCE_DEFINITION, fresh)
    await installs.told("PickHonoured", "True", "FilterPatch")
    await installs.has("h/EnvoyFilter/epp-ext-proc")

"""LLMInferenceServices on a real API server: objects, conditions, and what goes wrong."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.live import written
from tests.cluster.llmservices import ALL, Network, Services, peers, serving_defined
from tests.cluster.packages import ROOT
from tests.cluster.simulators import Site, defined, operator, published
from tests.waiting import eventually

from pointsman.api.llminferenceservice import SERVICE
from pointsman.kube import Client, Key, Object
from pointsman.operator.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    GATEWAY,
    HTTP_ROUTE,
    INFERENCE_POOL,
    ROLE,
    ROLE_BINDING,
    SECRET,
    WEBHOOKS,
)
from pointsman.operator.process import OperatorProcess
from pointsman.operator.standingdown import KSERVE, STANDING_DOWN
from pointsman.render.manifests.policy import Policy
from pointsman.render.serving.settings import ServingSettings

SERVERS = {"Deployment/phi3-kserve", "Service/phi3-kserve-workload-svc", "Secret/phi3-kserve-self-signed-certs"}
GATEWAY_OF_OURS = {
    "ConfigMap/phi3-kserve-gateway",
    "Deployment/phi3-kserve-gateway",
    "Service/phi3-kserve-gateway",
    "Service/phi3-kserve-pods",
}
PICKER = {
    "ServiceAccount/phi3-epp-sa",
    "Role/phi3-epp-role",
    "RoleBinding/phi3-epp-rb",
    "NetworkPolicy/phi3-kserve-router-scheduler",
    "Deployment/phi3-kserve-router-scheduler",
    "Service/phi3-epp-service",
}
CERTIFICATE = "phi3-kserve-self-signed-certs"
TRUSTING = Policy(trusted_images=("ghcr.io/llm-d/", "example.com/"))


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane, mesh=False), serving_defined(plane):
        yield


@pytest.fixture
async def services(site: Site) -> AsyncIterator[Services]:
    found = Services(site)
    yield found
    await found.clear()


@pytest.fixture
async def network(services: Services) -> AsyncIterator[Network]:
    async with peers(path=f"/{services.namespace}/phi3/v1/models") as network:
        yield network


@pytest.fixture
async def operated(plane: ControlPlane, services: Services, network: Network) -> AsyncIterator[OperatorProcess]:
    settings = ServingSettings(system_namespace=f"{services.namespace}-none")
    async with operator(
        plane.kubeconfig("admin"),
        namespaces=(services.namespace,),
        llm=settings,
        reach=network.reach,
        policy=TRUSTING,
    ) as process:
        yield process


async def deployment(services: Services, name: str) -> Object:
    return await services.site.get(DEPLOYMENT, name)


async def secret(services: Services) -> Object:
    return await services.site.get(SECRET, CERTIFICATE)


async def another(services: Services, before: Object) -> Object:
    """Wait until there is another certificate, and return it."""

    async def asked() -> Object:
        found = await secret(services)
        assert found["data"]["tls.crt"] != before["data"]["tls.crt"]
        assert base64.b64decode(found["data"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE")
        return found

    return await eventually(asked)


async def test_a_service_its_picker_and_the_end_of_both(
    services: Services, operated: OperatorProcess, network: Network
) -> None:
    await services.create(replicas=2, router=ALL)
    live = await services.ready()
    assert set(await services.made()) == SERVERS | PICKER | GATEWAY_OF_OURS
    url = f"http://phi3-kserve-gateway.{services.namespace}.svc.cluster.local/{services.namespace}/phi3"
    assert live["status"]["url"] == url
    assert live["status"]["addresses"] == [{"name": "gateway-internal", "url": url}]
    assert f"phi3-epp-service.{services.namespace}.svc.cluster.local:9002" in network.asked
    told = {one["type"]: one["status"] for one in live["status"]["conditions"]}
    for type_ in ("PresetsCombined", "WorkloadsReady", "MainWorkloadReady", "RouterReady", "SchedulerWorkloadReady"):
        assert told[type_] == "True"
    shown = await services.site.kubectl("get", "llmisvc", "phi3")
    assert shown.split()[:5] == ["NAME", "URL", "READY", "REASON", "AGE"] and url in shown
    # The picker goes: its objects with it, and the gateway asks the servers alone.
    await services.edit(router={"scheduler": None})
    await services.becomes(SERVERS | GATEWAY_OF_OURS)
    config = (await services.site.get(CONFIG_MAP, "phi3-kserve-gateway"))["data"]["envoy.yaml"]
    assert "phi3-epp-service" not in config and "phi3-kserve-pods" in config
    await services.ready()
    # Stopped: everything goes but the service, and comes back.
    await services.edit(metadata={"annotations": {"serving.kserve.io/stop": "true"}})
    await services.becomes(set())
    await services.told("Ready", "False", "Stopped")
    await services.edit(metadata={"annotations": {"serving.kserve.io/stop": None}})
    await services.ready()


async def test_the_certificate_follows_and_heals(services: Services, operated: OperatorProcess) -> None:
    await services.create(replicas=1, router={"scheduler": {}})
    await services.ready()

    first = await secret(services)
    key = Key(services.namespace, CERTIFICATE)
    await services.site.client.patch(SECRET, key, {"data": {"tls.crt": base64.b64encode(b"no").decode()}}, how="merge")
    second = await another(services, first | {"data": {"tls.crt": base64.b64encode(b"no").decode()}})
    assert second["data"]["tls.crt"] != first["data"]["tls.crt"]
    await services.site.client.delete(SECRET, key)
    third = await eventually(lambda: another(services, second))
    await services.told("CertificateReady", "True", "Issued")
    await services.ready()
    # More servers have more addresses.
    await services.edit(replicas=2)
    await another(services, third)


async def test_what_cannot_be_combined_changes_nothing(services: Services, operated: OperatorProcess) -> None:
    await services.create(replicas=1, router={"scheduler": {}})
    await services.ready()
    before = {name: written(one) for name, one in (await services.made()).items() if not name.startswith("Secret")}

    async def unchanged() -> None:
        now = await services.made()
        assert {name: written(one) for name, one in now.items() if not name.startswith("Secret")} == before

    await services.edit(baseRefs=[{"name": "gone"}])
    await services.told("PresetsCombined", "False", "ConfigNotFound", words="'gone'")
    await services.told("Ready", "False", "ConfigNotFound")
    await unchanged()
    await services.config("gone", template={"containers": [{"image": "x"}]})
    await services.told("PresetsCombined", "False", "CombineBaseError", words="containers[0] has no name")
    await unchanged()
    bad = {
        "kind": "EndpointPickerConfig",
        "apiVersion": "llm-d.ai/v1alpha1",
        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]}],
    }
    await services.edit(baseRefs=None, router={"scheduler": {"config": {"inline": bad}}})
    words = (
        "spec.router.scheduler.config.schedulingProfiles[0].plugins[0].pluginRef 'queue-scorer' is none of the plugins"
    )
    await services.told("PresetsCombined", "False", "InvalidRenderedConfig", words=words)
    await unchanged()
    await services.edit(router={"scheduler": {"config": None}})
    await services.ready()
    await unchanged()


async def test_a_configuration_in_a_config_map(services: Services, operated: OperatorProcess) -> None:
    ref = {"config": {"ref": {"name": "mine", "key": "epp"}}}
    await services.create(router={"scheduler": ref})
    await services.told("PresetsCombined", "False", "ConfigNotFound", words="key 'epp' of ConfigMap 'mine'")
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\n"
    document = {"metadata": {"name": "mine", "namespace": services.namespace}, "data": {"epp": text}}
    await services.site.client.create(CONFIG_MAP, document)
    await services.edit(replicas=1)  # a look, now
    await services.ready()
    args = (await deployment(services, "phi3-kserve-router-scheduler"))["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    assert args[-2:] == ["--config-text", text]


async def test_a_configuration_of_the_administrator_s(
    plane: ControlPlane, services: Services, operated: OperatorProcess
) -> None:
    """Names of a kind are looked for in the system's namespace, too; others are the service's alone."""
    system = f"{services.namespace}-none"  # as `operated` has it
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\n"
    plane.kubectl("create", "namespace", system)
    try:
        for name in ("config-scheduler-all", "other"):
            document = {"metadata": {"name": name, "namespace": system}, "data": {"epp": text}}
            await services.site.client.create(CONFIG_MAP, document)
        await services.create(router={"scheduler": {"config": {"ref": {"name": "other"}}}})
        await services.told("PresetsCombined", "False", "ConfigNotFound", words="key 'epp' of ConfigMap 'other'")
        await services.edit(router={"scheduler": {"config": {"ref": {"name": "config-scheduler-all"}}}})
        await services.ready()
        pod = (await deployment(services, "phi3-kserve-router-scheduler"))["spec"]["template"]["spec"]
        assert pod["containers"][0]["args"][-2:] == ["--config-text", text]
    finally:
        plane.kubectl("delete", "namespace", system, "--wait=false")


async def test_an_image_is_short_for_a_template_and_must_be_trusted(
    services: Services, operated: OperatorProcess
) -> None:
    await services.create(router={"scheduler": {"image": "example.com/picker:1"}})
    await services.ready()
    await services.told("SpecHonoured", "True", "Shorthand", words="containers[name=main].image")
    picker = await deployment(services, "phi3-kserve-router-scheduler")
    assert picker["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/picker:1"
    await services.edit(router={"scheduler": {"image": "elsewhere.example/picker:1"}})
    await services.told("Ready", "False", "LimitExceeded", words="--trusted-image-prefixes")
    picker = await deployment(services, "phi3-kserve-router-scheduler")
    assert picker["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/picker:1"


async def test_fields_of_kserve_are_kept_and_named(services: Services, operated: OperatorProcess) -> None:
    model = {"uri": "hf://a/b", "lora": {"adapters": [{"name": "x"}]}, "criticality": "Critical"}
    await services.create(model=model, worker={"containers": []}, scaling={"maxReplicas": 3}, router={"ingress": {}})
    words = "spec.scaling, spec.worker, spec.model.criticality, spec.model.lora, spec.router.ingress"
    await services.told("SpecHonoured", "False", "FieldsNotActedOn", words=words)
    live = await services.get()
    assert live["spec"]["model"] == model and live["spec"]["scaling"] == {"maxReplicas": 3}
    await services.ready()


async def test_rules_of_the_definition(services: Services) -> None:
    for spec, words in (
        ({"router": {"scheduler": {"replicas": 0}}}, "replicas is less than one"),
        ({"router": {"scheduler": {"config": {}}}}, "inline and ref exclude each other, and one is needed"),
        ({"parallelism": {"data": 2}}, "dataLocal and data go together"),
        ({"router": {"route": {"http": {"refs": [{"name": "a"}], "spec": {}}}}}, "refs and spec exclude each other"),
        ({"model": {"name": "a"}}, "spec.model.uri: Required value"),
    ):
        with pytest.raises(Exception, match=words):
            await services.create(**spec)


async def test_a_picker_without_alpn_is_not_ready(plane: ControlPlane, services: Services) -> None:
    async with (
        peers(alpn=("http/1.1",)) as network,
        operator(
            plane.kubeconfig("admin"), namespaces=(services.namespace,), llm=ServingSettings(), reach=network.reach
        ),
    ):
        await services.create(router={"scheduler": {}})
        await services.told("SchedulerWorkloadReady", "False", "HandshakeFailed", words="chooses no ALPN protocol")
        await services.told("Ready", "False", "HandshakeFailed")


async def test_a_picker_that_nobody_reaches_is_not_ready(plane: ControlPlane, services: Services) -> None:
    network = Network()
    async with operator(
        plane.kubeconfig("admin"), namespaces=(services.namespace,), llm=ServingSettings(), reach=network.reach
    ):
        await services.create(router={"scheduler": {}})
        await services.told("SchedulerWorkloadReady", "False", "HandshakeFailed", words="no TLS handshake")
        async with peers() as there:
            network.ports |= there.ports
            await services.ready()


async def test_another_operator_goes_on_in_the_middle(
    plane: ControlPlane, services: Services, network: Network
) -> None:
    plan: dict[str, Any] = {"namespaces": (services.namespace,), "llm": ServingSettings(), "reach": network.reach}
    async with operator(plane.kubeconfig("admin"), **plan):
        await services.create(replicas=1, router=ALL)
        await eventually(lambda: deployment(services, "phi3-kserve"))  # and perhaps more, and perhaps not
    await services.edit(replicas=2)
    async with operator(plane.kubeconfig("admin"), **plan):
        await services.ready()
        assert (await deployment(services, "phi3-kserve"))["spec"]["replicas"] == 2
        assert set(await services.made()) == SERVERS | PICKER | GATEWAY_OF_OURS


async def test_the_rights_in_config_are_enough(plane: ControlPlane, services: Services, network: Network) -> None:
    files = ("rbac/role.yaml", "llm/role.yaml")
    rules = [rule for file in files for rule in yaml.safe_load((ROOT / "config" / file).read_text())["rules"]]
    metadata = {"name": "operator", "namespace": services.namespace}
    reference = {"apiGroup": ROLE.group, "kind": "Role", "name": "operator"}
    subjects = [{"apiGroup": ROLE.group, "kind": "User", "name": "visitor"}]
    client = services.site.client
    await client.create(ROLE, {"metadata": metadata, "rules": rules})
    await client.create(ROLE_BINDING, {"metadata": metadata, "roleRef": reference, "subjects": subjects})
    plan: dict[str, Any] = {"namespaces": (services.namespace,), "llm": ServingSettings(), "reach": network.reach}
    async with operator(plane.kubeconfig("visitor"), lead=True, **plan):
        await services.create(prefill={}, router=ALL)
        await services.ready()
        assert "Role/phi3-kserve-role" in await services.made()
        words = "validatingwebhookconfigurations.admissionregistration.k8s.io; what depends on it is left out"
        await services.told("ClusterAccess", "False", "Forbidden", words=words)


async def test_where_kserve_is_nothing_is_touched(
    plane: ControlPlane, client: Client, services: Services, network: Network
) -> None:
    await client.create(WEBHOOKS, {"metadata": {"name": KSERVE}, "webhooks": []})
    try:
        kserve = {"type": "Ready", "status": "Unknown", "reason": "Theirs", "message": ""}
        await services.create(router=ALL)
        path = SERVICE.path(services.namespace, "phi3", subresource="status")
        body = {"status": {"conditions": [kserve]}}
        await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        async with operator(plane.kubeconfig("admin"), llm=ServingSettings(), reach=network.reach):
            await services.told(STANDING_DOWN, "True", "KServeInstalled", words="looks after this service")
            assert await services.made() == {}
            found = (await services.get())["status"]["conditions"]
            assert kserve in [{name: one.get(name, "") for name in kserve} for one in found]
            # KServe goes, and the service is ours to look after.
            await client.delete(WEBHOOKS, Key("", KSERVE))
            await services.ready()
            assert await services.condition(STANDING_DOWN) == {}
    finally:
        await client.request("DELETE", WEBHOOKS.path())


async def test_with_the_gateway_api(plane: ControlPlane, services: Services, network: Network) -> None:
    """Definitions come while it runs: the own gateway makes room for a route; a Gateway that is not there is told."""
    settings = ServingSettings(gateway=(services.namespace, "edge"))
    async with operator(plane.kubeconfig("admin"), llm=settings, reach=network.reach):
        await services.create(router=ALL)
        await services.ready()
        with published(plane):
            mesh = {
                "InferencePool/phi3-inference-pool",
                "HTTPRoute/phi3-kserve-route",
                "DestinationRule/phi3-kserve-scheduler",
            }
            await services.becomes(SERVERS | PICKER | mesh)
            words = f"Gateway {services.namespace}/edge does not exist"
            await services.told("GatewaysReady", "False", "GatewayNotFound", words=words)
            await services.told("HTTPRoutesReady", "False", "HTTPRoutesNotReady")
            await services.told("InferencePoolReady", "False", "WaitingForGateway")
            await accept(services)
            live = await services.ready()
            assert live["status"]["url"] == f"http://10.0.0.9/{services.namespace}/phi3"
        await services.becomes(SERVERS | PICKER | GATEWAY_OF_OURS)


async def accept(services: Services) -> None:
    """Do what the controller of a Gateway does."""
    site, here = services.site, services.namespace
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    metadata = {"name": "edge", "namespace": here}
    await site.client.create(
        GATEWAY,
        {
            "apiVersion": GATEWAY.api_version,
            "kind": "Gateway",
            "metadata": metadata,
            "spec": {"gatewayClassName": "x", "listeners": [listener]},
        },
    )

    def yes(*types: str) -> list[dict[str, Any]]:
        told = {"status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return [{"type": type_, **told} for type_ in types]

    addresses = [{"type": "IPAddress", "value": "10.0.0.9"}]
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge", "namespace": here}
    route = {"parentRef": parent, "controllerName": "a.example/b", "conditions": yes("Accepted", "ResolvedRefs")}
    pool = {"parentRef": parent, "conditions": yes("Accepted")}
    for kind, name, status in (
        (GATEWAY, "edge", {"addresses": addresses, "conditions": yes("Accepted", "Programmed")}),
        (HTTP_ROUTE, "phi3-kserve-route", {"parents": [route]}),
        (INFERENCE_POOL, "phi3-inference-pool", {"parents": [pool]}),
    ):
        path = kind.path(here, name, subresource="status")
        await site.client.request("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")


async def test_the_sample_is_the_manifest_of_the_requirement_and_is_accepted(services: Services) -> None:
    for name in ("phi3", "simulators"):
        path = ROOT / "config" / "samples" / "llm" / f"{name}.yaml"
        shown = await services.site.kubectl(
            "create",
            "--dry-run=server",
            "-o",
            "json",
            "-f",
            "-",
            text=path.read_text().replace("rhaii-inference", services.namespace),
        )
        assert json.loads(shown)["spec"]

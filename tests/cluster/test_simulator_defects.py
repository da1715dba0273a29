"""Thirty-two things that went wrong with the operator that came before, each shown not to go wrong here.

A row is a defect that people met: what they did is done on a real API server, and what they should have seen is
asserted. What only Pods can show (which endpoint answered) is proved in tests/envoy and tests/e2e.
"""

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.live import written
from tests.cluster.operators import operating
from tests.cluster.packages import DEFAULT, documents
from tests.cluster.simulators import EVERYTHING, ON, POD, Site, defined
from tests.waiting import eventually

from pointsman.api import SIMULATOR_DEPLOYMENT
from pointsman.kube import Client, Kind, Object
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import Invalid
from pointsman.operator.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DESTINATION_RULE,
    INFERENCE_POOL,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
)

SHARED = "defects"
FRONT = "gaie-inference-scheduling-proxy"
PICKER = "gaie-sim-epp"
GATEWAY = "infra-sim-inference-gateway"
DECODE, PREFILL = (f"ms-sim-llm-d-modelservice-{stage}" for stage in ("decode", "prefill"))
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints")
STANDARD = {"inferenceGateway": ON | {"standard": ON}}


@pytest.fixture(scope="module", autouse=True)
def _operated(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One operator for all rows, as a process, and one whole stack for those that only look."""
    stack = {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": "stack", "namespace": SHARED},
        "spec": EVERYTHING,
    }
    log = tmp_path_factory.mktemp("defects") / "operator.log"
    with defined(plane), operating(plane, log, "--allow-external-services"):
        plane.kubectl("create", "namespace", SHARED)
        plane.kubectl("apply", "-f", "-", text=json.dumps(stack))
        plane.kubectl("wait", "--for=condition=Ready", "simulatordeployment/stack", "-n", SHARED, "--timeout=60s")
        yield
        plane.kubectl("delete", "namespace", SHARED, "--timeout=60s")


@pytest.fixture
async def whole(plane: ControlPlane, client: Client) -> Site:
    """The stack that has everything and that nobody changes."""
    return Site(plane, client, SHARED)


def container(deployment: Object) -> Object:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Object = only
    return found


def flag(deployment: Object, name: str) -> str:
    words: list[str] = container(deployment)["args"]
    return words[words.index(name) + 1]


async def envoy(site: Site, name: str = GATEWAY) -> Object:
    document: Object = yaml.safe_load((await site.get(CONFIG_MAP, name))["data"]["envoy.yaml"])
    return document


def clusters(document: Object) -> dict[str, Object]:
    return {one["name"]: one for one in document["static_resources"]["clusters"]}


def address(cluster: Object) -> tuple[str, int]:
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    found = endpoint["endpoint"]["address"]["socket_address"]
    return found["address"], found["port_value"]


async def addresses(site: Site, service: str) -> set[str]:
    """Return the addresses and ports to which a Service leads."""
    subsets = (await site.get(ENDPOINTS, service)).get("subsets", [])
    return {
        f"{one['ip']}:{port['port']}"
        for subset in subsets
        for one in subset.get("addresses", [])
        for port in subset["ports"]
    }


async def pods(site: Site, selector: str, port: int) -> set[str]:
    found = [one["status"].get("podIP") for one in await site.list(POD, selector)]
    return {f"{ip}:{port}" for ip in found if ip}


@asynccontextmanager
async def following(site: Site, kind: Kind) -> AsyncIterator[list[tuple[str, Object]]]:
    """Write down every event of a kind in the namespace while the block runs."""
    version = json.loads(await site.client.request("GET", kind.path(site.namespace)))["metadata"]["resourceVersion"]
    seen: list[tuple[str, Object]] = []
    began = asyncio.Event()

    async def follow() -> None:
        parameters = {"resourceVersion": version}
        async with site.client.watch(kind.path(site.namespace), parameters=parameters, stall=60) as lines:
            began.set()
            async for line in lines:
                event = json.loads(line)
                seen.append((event["type"], event["object"]))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        await began.wait()
        yield seen
        task.cancel()


async def test_row_01_load_balancing_makes_a_destination_rule(site: Site) -> None:
    await site.create(loadBalancing=ON)
    for algorithm in ("ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "LEAST_CONN"):
        await site.edit(loadBalancing={"algorithm": algorithm})
        await eventually(lambda algorithm=algorithm: balanced(site, algorithm))  # type: ignore[misc] # bound at once


async def balanced(site: Site, algorithm: str) -> None:
    policy = (await site.get(DESTINATION_RULE, f"{FRONT}-lb"))["spec"]["trafficPolicy"]
    assert policy["loadBalancer"]["simple"] == algorithm


async def test_row_02_edits_of_simulators_are_applied_and_drift_goes(site: Site) -> None:
    await site.create(decode=ON)
    await site.ready()
    amounts = {"limits": {"cpu": "2"}}
    await site.edit(decode={"image": "sim:2", "args": ["--x"], "resources": amounts, "port": 8300, "logVerbosity": 1})
    await site.kubectl("label", "deployment", DECODE, "llm-d.ai/role=other", "--overwrite")
    await site.kubectl("set", "image", f"deployment/{DECODE}", "decode=vandal:1")

    async def applied() -> None:
        live = await site.get(DEPLOYMENT, DECODE)
        only = container(live)
        assert (only["image"], only["args"][-1], only["resources"]) == ("sim:2", "--x", amounts)
        assert (flag(live, "--port"), flag(live, "--v")) == ("8300", "1")
        assert live["metadata"]["labels"]["llm-d.ai/role"] == "decode"

    await eventually(applied)


async def test_row_03_edits_of_the_picker_are_applied_and_drift_goes(site: Site) -> None:
    await site.create(epp=ON)
    await site.ready()
    await site.edit(epp={"replicas": 2, "image": "pointsman:2", "port": 8101})
    await site.kubectl("patch", "configmap", PICKER, "--type=merge", "-p", '{"data":{"default-plugins.yaml":"{}"}}')
    await site.kubectl("patch", "service", PICKER, "--type=merge", "-p", '{"spec":{"selector":{"x":"y"}}}')

    async def applied() -> None:
        live = await site.get(DEPLOYMENT, PICKER)
        assert (live["spec"]["replicas"], container(live)["image"]) == (2, "pointsman:2")
        assert "kind: EndpointPickerConfig" in (await site.get(CONFIG_MAP, PICKER))["data"]["default-plugins.yaml"]
        service = (await site.get(SERVICE, PICKER))["spec"]
        assert (service["ports"][0]["port"], service["ports"][0]["targetPort"]) == (8101, 9002)
        assert service["selector"].get("app.kubernetes.io/name") == "stack"

    await eventually(applied)


async def test_row_04_edits_of_a_gateway_are_applied(site: Site) -> None:
    await site.create(**STANDARD)
    await site.ready()
    before = await site.get(DEPLOYMENT, GATEWAY)
    await site.edit(
        inferenceGateway={"standard": {"replicas": 2, "image": "envoy:2", "port": 8888}},
        loadBalancing=ON | {"algorithm": "RANDOM"},
    )

    async def applied() -> None:
        live = await site.get(DEPLOYMENT, GATEWAY)
        assert (live["spec"]["replicas"], container(live)["image"]) == (2, "envoy:2")
        template, old = (one["spec"]["template"]["metadata"]["annotations"] for one in (live, before))
        assert template != old  # Envoy reads its file once: new text, new Pods
        assert "load_balancing_policies.random" in (await site.get(CONFIG_MAP, GATEWAY))["data"]["envoy.yaml"]
        assert [one["port"] for one in (await site.get(SERVICE, GATEWAY))["spec"]["ports"]] == [8888]

    await eventually(applied)


async def test_row_05_edits_of_services_are_applied(site: Site) -> None:
    await site.create()
    await site.ready()
    await site.edit(service={"port": 9000, "type": "NodePort"})
    await site.kubectl("patch", "service", FRONT, "--type=merge", "-p", '{"spec":{"selector":{"llm-d.ai/role":"x"}}}')

    async def applied() -> None:
        spec = (await site.get(SERVICE, FRONT))["spec"]
        assert (spec["type"], spec["ports"][0]["port"], spec["selector"]["llm-d.ai/role"]) == (
            "NodePort",
            9000,
            "decode",
        )

    await eventually(applied)


async def test_row_06_what_is_disabled_goes(site: Site) -> None:
    await site.create(**EVERYTHING)
    await site.ready()
    off = {"enabled": False}
    await site.edit(epp=off, inferenceGateway=off, gateway=off, loadBalancing=off, prefill=off, decode=None)
    await site.becomes({f"Service/{FRONT}", "Deployment/ms-sim-stack-decode"})


async def test_row_07_the_picker_has_an_account_that_may_do_its_work(whole: Site) -> None:
    await whole.get(SERVICE_ACCOUNT, PICKER)
    role = await whole.get(ROLE, PICKER)
    binding = await whole.get(ROLE_BINDING, PICKER)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": PICKER, "namespace": SHARED}]
    assert (binding["roleRef"]["name"], role["metadata"]["name"]) == (PICKER, PICKER)
    (pod,) = await whole.list(POD, "component=epp")
    assert pod["spec"]["serviceAccountName"] == PICKER
    account = f"--as=system:serviceaccount:{SHARED}:{PICKER}"
    for verb, what in (("list", "pods"), ("watch", "pods"), ("watch", "inferencepools.inference.networking.k8s.io")):
        assert (await whole.kubectl("auth", "can-i", verb, what, account)).strip() == "yes"


async def test_row_08_the_picker_has_a_pool_and_is_ready_when_it_says_so(whole: Site) -> None:
    live = await whole.get(DEPLOYMENT, PICKER)
    pool = await whole.get(INFERENCE_POOL, flag(live, "--pool-name"))
    assert pool["spec"]["endpointPickerRef"]["name"] == PICKER
    probe = container(live)["readinessProbe"]
    assert (probe["grpc"], "tcpSocket" in probe) == ({"port": 9003, "service": "readiness"}, False)


async def test_row_09_a_second_stack_does_not_touch_the_first(site: Site) -> None:
    await site.create("first", decode=ON | {"replicas": 1})
    await site.ready("first")
    before = written(await site.get(DEPLOYMENT, DECODE))
    await site.create("second", decode=ON | {"replicas": 3})
    message = await site.told("Conflict", "True", "NameTaken", "second")
    assert f"belongs to simulatordeployments.sim.llm-d.io/{site.namespace}/first" in message
    assert written(await site.get(DEPLOYMENT, DECODE)) == before


async def test_row_10_the_gateway_asks_the_picker(whole: Site) -> None:
    document = await envoy(whole)
    host, port = address(clusters(document)["pickers"])
    service = (await whole.get(SERVICE, host.partition(".")[0]))["spec"]
    assert (port, host) in {(one["port"], f"{PICKER}.{SHARED}.svc.cluster.local") for one in service["ports"]}
    filters = [
        item
        for listener in document["static_resources"]["listeners"]
        for item in listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    ]
    (asks,) = (one["typed_config"] for one in filters if one["name"] == "envoy.filters.http.ext_proc")
    assert asks["processing_mode"]["request_body_mode"] == "FULL_DUPLEX_STREAMED"
    # And the pick is obeyed: the cluster that it leads to connects to the address that it names.
    assert clusters(document)["picked"]["original_dst_lb_config"]["metadata_key"]["key"] == "envoy.lb"


@pytest.mark.parametrize(
    ("mode", "role", "port"),
    [
        pytest.param({"service": {"port": 9000}}, "decode", 9000, id="no stages"),
        pytest.param({"decode": ON | {"port": 8300}}, "decode", 8300, id="decode on its own port"),
        pytest.param({"prefill": ON}, "prefill", 8200, id="prefill alone"),
    ],
)
async def test_row_11_the_gateways_backend_is_there_in_every_mode(
    site: Site, mode: dict[str, Any], role: str, port: int
) -> None:
    await site.create(**STANDARD, **mode)
    await site.ready()
    host, number = address(clusters(await envoy(site))["model-servers"])
    assert number == port

    async def reached() -> None:
        behind = await addresses(site, host.partition(".")[0])
        assert behind == await pods(site, f"llm-d.ai/role={role}", port)
        assert len(behind) == 2

    await eventually(reached)


async def test_row_12_the_gateway_knows_every_pod_and_not_one_address_for_all(whole: Site) -> None:
    servers = clusters(await envoy(whole))["model-servers"]
    headless = address(servers)[0].partition(".")[0]
    assert servers["type"] == "STRICT_DNS"  # one address of the name is one endpoint
    assert (await whole.get(SERVICE, headless))["spec"]["clusterIP"] == "None"

    async def reached() -> None:
        assert len(await addresses(whole, headless)) == 2

    await eventually(reached)


async def test_row_13_the_admin_is_closed_and_every_port_and_probe_is_real(whole: Site) -> None:
    admin = (await envoy(whole))["admin"]["address"]["socket_address"]
    assert admin["address"] == "127.0.0.1"
    only = container(await whole.get(DEPLOYMENT, GATEWAY))
    listeners = (await envoy(whole))["static_resources"]["listeners"]
    bound = {one["address"]["socket_address"]["port_value"] for one in listeners if "address" in one}
    assert {one["containerPort"] for one in only["ports"]} == bound == {80, 19000}
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= only.keys()


async def test_row_14_the_istio_gateway_runs_without_istio(whole: Site) -> None:
    live = await whole.get(DEPLOYMENT, f"{GATEWAY}-istio")
    only = container(live)
    assert (only["command"], only["args"][:2]) == (
        ["/usr/local/bin/envoy"],
        ["--config-path", "/etc/envoy/envoy.yaml"],
    )
    mounted = {one["configMap"]["name"] for one in live["spec"]["template"]["spec"]["volumes"] if "configMap" in one}
    assert mounted == {f"{GATEWAY}-istio"}
    ((target,),) = ([one["targetPort"]] for one in (await whole.get(SERVICE, f"{GATEWAY}-istio"))["spec"]["ports"])
    assert target in {one["containerPort"] for one in only["ports"]}
    assert (await whole.condition("IstioGatewayReady"))["status"] == "True"
    told = await whole.condition("IstioGateway")
    assert (told["status"], told["reason"]) == ("False", "IstioMissing")


async def test_row_15_each_gateway_gets_its_own_traffic(whole: Site) -> None:
    async def reached() -> None:
        for kind, name in (("standard", GATEWAY), ("istio", f"{GATEWAY}-istio")):
            behind = await addresses(whole, name)
            assert behind == await pods(whole, f"component=gateway,llm-d.ai/gateway-type={kind}", 80)
            assert len(behind) == 1

    await eventually(reached)


async def test_row_16_an_image_may_be_pulled(site: Site) -> None:
    await site.create(replicas=2)
    await site.ready()
    only = container(await site.get(DEPLOYMENT, "ms-sim-stack-decode"))
    assert (only["image"], only["imagePullPolicy"]) == ("ghcr.io/llm-d/llm-d-simulator:latest", "IfNotPresent")
    await site.edit(imagePullPolicy="Never")

    async def applied() -> None:
        assert container(await site.get(DEPLOYMENT, "ms-sim-stack-decode"))["imagePullPolicy"] == "Never"

    await eventually(applied)


async def test_row_17_ready_is_never_said_too_early(site: Site) -> None:
    async with following(site, SIMULATOR_DEPLOYMENT) as seen:
        await site.create(replicas=3)
        await site.ready()
        await site.edit(replicas=0)
        await site.told("Ready", "False", "ScaledToZero")
    claims = [live for _, live in seen if truth_of(live, "Ready") == "True"]
    # What is said of an older generation is said as such, and was true of it.
    current = [live for live in claims if live["status"]["observedGeneration"] == live["metadata"]["generation"]]
    assert current
    assert {(live["spec"]["replicas"], live["status"]["readyReplicas"]) for live in current} == {(3, 3)}


async def test_row_18_every_component_counts(site: Site, whole: Site) -> None:
    conditions = {one["type"] for one in (await whole.ready())["status"]["conditions"]}
    assert conditions >= {"EPPReady", "PrefillReady", "DecodeReady", "GatewayReady", "IstioGatewayReady"}
    await site.create(prefill=ON | {"replicas": 1}, epp=ON | {"replicas": 0})
    message = await site.told("Ready", "False", "ScaledToZero")
    assert message.startswith("EPPReady is False: gaie-sim-epp has 0 replicas")

    async def counted() -> None:  # of a stack without a decode stage, too
        assert (await site.get(SIMULATOR_DEPLOYMENT, "stack"))["status"]["readyReplicas"] == 1

    await eventually(counted)


async def test_row_19_status_says_where_to_send_requests(whole: Site) -> None:
    status = (await whole.ready())["status"]
    assert set(status["endpoints"]) == await pods(whole, "llm-d.ai/inferenceServing=true", 8200)
    assert status["gatewayURL"] == f"http://{GATEWAY}.{SHARED}.svc.cluster.local:8080"
    service = (await whole.get(SERVICE, GATEWAY))["spec"]
    assert [one["port"] for one in service["ports"]] == [8080]


async def test_row_20_status_is_not_written_for_its_own_sake(whole: Site) -> None:
    await whole.told("Progressing", "False", "Complete")
    before = await whole.ready()
    await asyncio.sleep(2)
    after = await whole.ready()
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
    assert all(one["observedGeneration"] == after["metadata"]["generation"] for one in after["status"]["conditions"])


async def test_row_21_an_error_is_a_condition_with_its_fix(site: Site) -> None:
    await site.limit("none", **{"count/deployments.apps": "0"})
    await site.create()
    message = await site.told("Ready", "False", "Forbidden", words="exceeded quota: none")
    assert message.endswith("or raise the quota")
    await site.kubectl("delete", "quota", "none")
    await site.ready()


async def test_row_22_no_block_is_ignored(whole: Site, site: Site) -> None:
    told = await whole.condition("LegacyGateway")
    assert (told["status"], told["reason"]) == ("False", "GatewayClassMissing")
    assert {"Gateway/old-route", "HTTPRoute/old-route"} <= (await whole.made()).keys()
    await site.create(decode=ON, service={"name": "mine", "port": 80})
    await site.ready()

    async def reached() -> None:
        behind = await addresses(site, "mine")
        assert behind == await pods(site, "llm-d.ai/role=decode", 8200)
        assert behind

    await eventually(reached)


async def test_row_23_a_stage_has_the_stacks_verbosity_and_zero_is_a_number(site: Site) -> None:
    await site.create(logVerbosity=3, prefill=ON, decode=ON | {"logVerbosity": 0})
    await site.ready()
    assert flag(await site.get(DEPLOYMENT, PREFILL), "--v") == "3"
    assert flag(await site.get(DEPLOYMENT, DECODE), "--v") == "0"


async def test_row_24_a_stack_can_be_scaled_to_zero(site: Site) -> None:
    await site.create(replicas=1)
    await site.ready()
    await site.edit(replicas=0)

    async def gone() -> None:
        assert await site.list(POD) == []

    await eventually(gone)


async def test_row_25_a_configmap_that_is_deleted_comes_back_by_itself(site: Site) -> None:
    await site.create(epp=ON)
    await site.ready()
    before = await site.get(CONFIG_MAP, PICKER)
    await site.kubectl("delete", "configmap", PICKER)

    async def back() -> None:
        after = await site.get(CONFIG_MAP, PICKER)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["data"] == before["data"]

    await eventually(back)


async def test_row_26_nothing_is_made_while_a_stack_is_being_deleted(site: Site) -> None:
    await site.create(epp=ON, **STANDARD)
    await site.ready()
    async with following(site, DEPLOYMENT) as deployments, following(site, CONFIG_MAP) as maps:
        await site.kubectl("delete", "simulatordeployment", "stack", "--cascade=foreground", "--timeout=60s")
        await site.empties()
        await asyncio.sleep(0.5)
    events = [*deployments, *maps]
    assert sum(kind == "DELETED" for kind, _ in events) == 5
    assert not [live["metadata"]["name"] for kind, live in events if kind == "ADDED"]


async def test_row_27_simulators_are_probed_and_know_who_they_are(whole: Site) -> None:
    for name in (DECODE, PREFILL):
        only = container(await whole.get(DEPLOYMENT, name))
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= only.keys()
        fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in only["env"] if "valueFrom" in one}
        assert fields == {
            "POD_NAME": "metadata.name",
            "POD_NAMESPACE": "metadata.namespace",
            "POD_IP": "status.podIP",
        }


async def test_row_28_the_pickers_service_says_that_it_speaks_http2(whole: Site) -> None:
    ports = {one["port"]: one for one in (await whole.get(SERVICE, PICKER))["spec"]["ports"]}
    for number in (8100, 9002):
        assert (ports[number]["appProtocol"], ports[number]["name"][:4]) == ("http2", "grpc")


async def test_row_29_metrics_are_served_where_the_flag_says(plane: ControlPlane, tmp_path: Path) -> None:
    flags = ("--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--zap-encoder=json")
    command = [sys.executable, "-m", "pointsman", "operator", *flags, "--watch-namespaces=elsewhere"]
    log = tmp_path / "operator.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, f"--kubeconfig={plane.kubeconfig('admin')}", stdout=output, stderr=output
        )

    async def served() -> None:
        lines = [json.loads(line) for line in log.read_text().splitlines() if '"port"' in line]
        ports = {line["paths"]: line["port"] for line in lines}
        metrics, health = ports["/metrics"], ports["/healthz /readyz"]
        assert await fetched(health, "/healthz") == "ok\n"
        assert await fetched(health, "/readyz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="401"):  # not for everyone
            await fetched(metrics, "/metrics")
        assert "rest_client_requests_total" in await fetched(metrics, "/metrics", token=plane.tokens["admin"])

    try:
        await eventually(served)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def fetched(port: int, path: str, *, token: str = "") -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {token}"})
    with await asyncio.to_thread(direct.open, asked, timeout=5) as answer:
        text: str = answer.read().decode()
        return text


async def test_row_30_the_operator_can_run_in_the_cluster(site: Site) -> None:
    found = documents(await site.kubectl("kustomize", str(DEFAULT)))
    kinds = {one["kind"] for one in found}
    assert kinds >= {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Deployment"}
    for one in found:
        if "namespace" in one["metadata"]:
            one["metadata"]["namespace"] = site.namespace
    text = yaml.safe_dump_all([one for one in found if one["kind"] != "CustomResourceDefinition"])
    said = await site.kubectl("apply", "--dry-run=server", "-f", "-", text=text)
    assert "deployment.apps/pointsman-operator created" in said


async def test_row_31_prefill_pods_have_a_part(whole: Site) -> None:
    config = yaml.safe_load((await whole.get(CONFIG_MAP, PICKER))["data"]["default-plugins.yaml"])
    types = {one["type"] for one in config["plugins"]}
    assert types >= {"pd-profile-handler", "prefill-header-handler", "prefill-filter", "decode-filter"}
    labels = (await whole.get(INFERENCE_POOL, "gaie-sim"))["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    roles = [one["metadata"]["labels"]["llm-d.ai/role"] for one in await whole.list(POD, selector)]
    assert sorted(roles) == ["decode", "decode", "prefill", "prefill"]
    told = await whole.condition("Disaggregation")
    assert (told["status"], told["reason"]) == ("False", "HeadersOnly")  # how far it goes is said


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"epp": {"port": 65536}}, "spec.epp.port", id="no port"),
        pytest.param({"epp": {"port": 9003}}, "spec.epp.port", id="a port that is taken"),
        pytest.param({"decode": {"port": 0}}, "spec.decode.port", id="zero"),
        pytest.param({"service": {"type": "Nonsense"}}, "spec.service.type", id="no type"),
    ],
)
async def test_row_32_ports_and_types_are_checked_by_the_api_server(site: Site, spec: Any, field: str) -> None:
    with pytest.raises(Invalid, match=field.replace(".", r"\.")):
        await site.create(**spec)

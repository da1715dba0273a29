"""SimulatorDeployment on a real API server: what it accepts, fills in and refuses, and what kubectl shows of it.

What is refused here must be refused by `parse` too, so that a file means the same on a laptop.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.guesses import fields
from tests.unit.api.test_read import document
from tests.waiting import eventually

from pointsman.api import SIMULATOR_DEPLOYMENT, SimulatorDeployment, parse
from pointsman.api.crd import simulator_definition
from pointsman.core.errors import UserError
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.kube import Client, Key
from pointsman.kube.errors import Invalid

CONFIG = Path(__file__).parents[2] / "config"
SAMPLES = CONFIG / "samples"


@pytest.fixture(scope="module", autouse=True)
def defined(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("apply", "-k", str(CONFIG / "crd"))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{SIMULATOR_DEPLOYMENT}")
    yield
    plane.kubectl("delete", "-k", str(CONFIG / "crd"))


async def stored(client: Client, namespace: str, *, name: str = "stack") -> dict[str, Any]:
    spec: dict[str, Any] = (await client.get(SIMULATOR_DEPLOYMENT, Key(namespace, name)))["spec"]
    return spec


def apply(plane: ControlPlane, namespace: str, text: str) -> str:
    return plane.kubectl("apply", "-n", namespace, "-f", "-", text=text)


async def test_the_definition_has_no_fault(client: Client, namespace: str) -> None:
    """The server accepts a schema that is not structural, and then says so here and prunes nothing."""
    found = await client.get(CUSTOM_RESOURCE_DEFINITION, Key("", str(SIMULATOR_DEPLOYMENT)))
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions["Established"] == "True"


@pytest.mark.parametrize("name", ["minimal", "istio", "full", "prefill_decode"])
async def test_samples_are_accepted(plane: ControlPlane, client: Client, namespace: str, name: str) -> None:
    sample = yaml.safe_load((SAMPLES / f"sim_v1alpha1_simulatordeployment_{name}.yaml").read_text())
    sample["metadata"]["namespace"] = namespace
    apply(plane, namespace, json.dumps(sample))
    found = await client.get(SIMULATOR_DEPLOYMENT, Key(namespace, sample["metadata"]["name"]))
    assert parse(found, source="server").spec == parse(sample, source="file").spec


async def test_folders_can_be_applied_whole(plane: ControlPlane) -> None:
    (sample,) = yaml.safe_load_all(plane.kubectl("kustomize", str(SAMPLES)))
    assert sample == yaml.safe_load((SAMPLES / "sim_v1alpha1_simulatordeployment_full.yaml").read_text())


async def test_defaults_are_filled_in(client: Client, namespace: str) -> None:
    raw = document(
        service={},
        gateway={},
        loadBalancing={"connectionPool": {}},
        epp={},
        inferenceGateway={"standard": {}, "istio": {}},
        prefill={},
        decode={},
    )
    raw["metadata"]["namespace"] = namespace
    await client.create(SIMULATOR_DEPLOYMENT, raw)
    gateway = {"enabled": False, "replicas": 1, "port": 8080}
    stage = {"enabled": False, "replicas": 2, "port": 8200}
    assert await stored(client, namespace) == {
        "replicas": 2,
        "image": "ghcr.io/llm-d/llm-d-simulator:latest",
        "imagePullPolicy": "IfNotPresent",
        "logVerbosity": 5,
        "service": {"name": "gaie-inference-scheduling-proxy", "port": 8200, "type": "ClusterIP"},
        "gateway": {"enabled": False, "className": "istio", "routeName": "infra-sim-inference-gateway"},
        "loadBalancing": {
            "enabled": False,
            "algorithm": "ROUND_ROBIN",
            "connectionPool": {"http1MaxPendingRequests": 1, "maxRequestsPerConnection": 1},
        },
        "epp": {
            "enabled": False,
            "replicas": 1,
            "image": "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
            "port": 8100,
            "verbosity": 1,
            "failureMode": "FailOpen",
        },
        "inferenceGateway": {"enabled": False, "standard": gateway, "istio": gateway},
        "prefill": stage,
        "decode": stage,
    }


@pytest.mark.parametrize("spec", ["", "spec:", "spec: {}"], ids=["absent", "null", "empty"])
async def test_a_resource_that_says_nothing(plane: ControlPlane, client: Client, namespace: str, spec: str) -> None:
    head = "apiVersion: sim.llm-d.io/v1alpha1\nkind: SimulatorDeployment\nmetadata: {name: stack}\n"
    apply(plane, namespace, head + spec)
    assert (await stored(client, namespace))["replicas"] == 2


def nulls(value: Any) -> Any:
    """Return a document in which every scalar, list and empty block is null."""
    return {name: nulls(inner) for name, inner in value.items()} if isinstance(value, dict) and value else None


async def test_null_is_left_out(plane: ControlPlane, client: Client, namespace: str) -> None:
    """As in the sample whose `loadBalancing:` was cut off, and everywhere else."""
    cut = """
        apiVersion: sim.llm-d.io/v1alpha1
        kind: SimulatorDeployment
        metadata: {name: llm-sim-istio}
        spec:
          replicas: 2
          service: {name: gaie-inference-scheduling-proxy, port: 8200}
          loadBalancing:
    """
    apply(plane, namespace, cut)
    full = yaml.safe_load((SAMPLES / "sim_v1alpha1_simulatordeployment_full.yaml").read_text())
    raw = document(**nulls(full["spec"]), resources=None, nameSuffix=None, gateway=None)
    raw["metadata"]["namespace"] = namespace
    found = await client.create(SIMULATOR_DEPLOYMENT, raw)
    assert parse(found, source="server").spec == parse(raw, source="file").spec
    assert found["spec"]["epp"]["port"] == 8100


REFUSED = [
    pytest.param({"replicas": -1}, "spec.replicas", "greater than or equal to 0", id="negative replicas"),
    pytest.param({"replicas": 1_000_001}, "spec.replicas", "less than or equal to 1000000", id="a million replicas"),
    pytest.param({"replicas": "2"}, "spec.replicas", "must be of type integer", id="text for a number"),
    pytest.param({"image": ""}, "spec.image", "at least 1 chars", id="no image"),
    pytest.param({"imagePullPolicy": "Sometimes"}, "spec.imagePullPolicy", '"Always"', id="pull policy"),
    pytest.param({"logVerbosity": 11}, "spec.logVerbosity", "less than or equal to 10", id="verbosity"),
    pytest.param({"nameSuffix": "b"}, "spec.nameSuffix", "should match", id="suffix without hyphen"),
    pytest.param({"nameSuffix": "-" + "b" * 12}, "spec.nameSuffix", "than 12", id="long suffix"),
    pytest.param({"service": {"port": 0}}, "spec.service.port", "greater than or equal to 1", id="port zero"),
    pytest.param({"service": {"port": 65536}}, "spec.service.port", "less than or equal to 65535", id="port too high"),
    pytest.param({"service": {"type": "ExternalName"}}, "spec.service.type", '"ClusterIP"', id="service type"),
    pytest.param({"service": {"name": "Upper"}}, "spec.service.name", "should match", id="service name"),
    pytest.param({"gateway": {"className": ""}}, "spec.gateway.className", "at least 1", id="no gateway class"),
    pytest.param({"loadBalancing": {"algorithm": "LEAST"}}, "spec.loadBalancing.algorithm", '"RANDOM"', id="algorithm"),
    pytest.param(
        {"loadBalancing": {"connectionPool": {"maxRequestsPerConnection": -1}}},
        "spec.loadBalancing.connectionPool.maxRequestsPerConnection",
        "greater than or equal to 0",
        id="pool",
    ),
    pytest.param({"epp": {"enabled": "yes"}}, "spec.epp.enabled", "must be of type boolean", id="text for a switch"),
    pytest.param({"epp": {"port": 70000}}, "spec.epp.port", "less than or equal to 65535", id="picker port"),
    pytest.param({"epp": {"args": [1]}}, "spec.epp.args[0]", "must be of type string", id="argument"),
    pytest.param({"prefill": {"port": -5}}, "spec.prefill.port", "greater than or equal to 1", id="stage port"),
    pytest.param({"decode": {"replicas": 1.5}}, "spec.decode.replicas", "must be of type integer", id="half a Pod"),
    pytest.param(
        {"inferenceGateway": {"standard": {"port": 0}}},
        "spec.inferenceGateway.standard.port",
        "greater than or equal to 1",
        id="gateway port",
    ),
    pytest.param(
        {"resources": {"limits": {"cpu": "lots"}}}, "spec.resources.limits.cpu", "should match", id="quantity"
    ),
    pytest.param(
        {"resources": {"requests": {"cpu": "1e99999999"}, "limits": {"cpu": "1"}}},
        "spec.resources.requests.cpu",
        "should match",
        id="quantity that nobody can write out",
    ),
    pytest.param(
        {"resources": {"claims": [{"name": "a"}, {"name": "a"}]}}, "spec.resources.claims[1]", "Duplicate", id="claims"
    ),
    pytest.param({"resources": {"limits": {"cpu": 0.5}}}, "spec.resources.limits.cpu", "integer", id="fraction"),
    pytest.param(
        {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1500Mi", "cpu": 1}}},
        "spec.resources.requests",
        "requests ask for more than limits allow: lower the request or raise the limit of the same name",
        id="requests above limits",
    ),
    pytest.param(
        {"decode": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
        "spec.decode.resources.requests",
        "requests ask for more than limits allow",
        id="a number above a text",
    ),
    pytest.param(
        {"epp": {"port": 9090}},
        "spec.epp.port",
        "port is a port that the picker's Service has already (9003, 9090): choose another, such as 8100",
        id="the picker's metrics port",
    ),
    pytest.param(
        {"service": {"name": "infra-sim-inference-gateway-istio"}},
        "spec.service.name",
        "service.name is the name of another Service of the stack: choose another, or leave it out",
        id="a gateway's Service",
    ),
    pytest.param(
        {"service": {"name": "gaie-sim-epp-b"}, "nameSuffix": "-b"},
        "spec.service.name",
        "is the name of another Service of the stack",
        id="the picker's Service, with the suffix",
    ),
    pytest.param(
        {"epp": {"enabled": True}, "prefill": {"enabled": True}, "decode": {"enabled": True, "port": 8201}},
        "spec.prefill.port",
        "prefill.port differs from decode.port, and the picker knows both stages by one port: make them equal",
        id="stages on two ports",
    ),
]


@pytest.mark.parametrize(("spec", "path", "reason"), REFUSED)
async def test_refused(plane: ControlPlane, namespace: str, spec: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(AssertionError) as refusal:
        apply(plane, namespace, json.dumps(document(**spec)))
    assert path in str(refusal.value) and reason in str(refusal.value)
    with pytest.raises(UserError, match="spec"):
        parse(document(**spec), source="file")


async def test_a_long_name_is_refused(plane: ControlPlane, namespace: str) -> None:
    apply(plane, namespace, json.dumps(document("a" * 40)))
    with pytest.raises(AssertionError, match=r"metadata\.name has more than 40 characters, .*: choose a shorter one"):
        apply(plane, namespace, json.dumps(document("a" * 41)))


async def test_an_unknown_field_is_refused_by_kubectl(plane: ControlPlane, namespace: str) -> None:
    with pytest.raises(AssertionError, match=r'unknown field "spec\.replicsa"'):
        apply(plane, namespace, json.dumps(document(replicsa=3)))


ON = {"enabled": True}
ACCEPTED = [
    pytest.param({"prefill": ON, "decode": ON | {"port": 8201}}, id="two ports without a picker"),
    pytest.param({"epp": ON, "prefill": None, "decode": ON | {"port": 8201}}, id="one stage on its own port"),
    pytest.param({"service": {"name": "gaie-sim-epp"}, "nameSuffix": "-b"}, id="a name that the suffix makes free"),
    pytest.param({"epp": {"port": 9002}}, id="the picker's own port for its Service"),
    pytest.param({"replicas": 0, "decode": {"replicas": 0}}, id="nobody"),
    pytest.param({"logVerbosity": 0, "prefill": {"logVerbosity": 0}}, id="silence"),
    pytest.param({"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1000m"}}}, id="equal in two spellings"),
    pytest.param({"resources": {"requests": {"cpu": 1}, "limits": None}}, id="null limits"),
    pytest.param({"service": None, "nameSuffix": None}, id="null service"),
    pytest.param({"resources": {"claims": [{"name": "gpu"}, {"name": "nic", "request": "a"}]}}, id="claims"),
]


@pytest.mark.parametrize("spec", ACCEPTED)
async def test_accepted(plane: ControlPlane, namespace: str, spec: dict[str, Any]) -> None:
    apply(plane, namespace, json.dumps(document(**spec)))
    parse(document(**spec), source="file")


async def test_columns(plane: ControlPlane, client: Client, namespace: str) -> None:
    sample = SAMPLES / "sim_v1alpha1_simulatordeployment_minimal.yaml"
    apply(plane, namespace, sample.read_text().replace("llm-d-sim\n", f"{namespace}\n"))
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": ""}
    status = {"replicas": 2, "readyReplicas": 2, "gatewayURL": "http://gateway", "conditions": [ready]}
    key = Key(namespace, "llm-sim-minimal")
    await client.patch(SIMULATOR_DEPLOYMENT, key, {"status": status}, how="merge", subresource="status")
    for word in ("simulatordeployment", "simdep", "simulatordeployments.sim.llm-d.io"):
        head, row = plane.kubectl("get", word, "-n", namespace).splitlines()
        assert head.split() == ["NAME", "REPLICAS", "READY", "AGE"]
        assert re.fullmatch(r"llm-sim-minimal +2 +2 +\d+s", row)
    head, row = plane.kubectl("get", "simdep", "-n", namespace, "-o", "wide").splitlines()
    assert head.split() == ["NAME", "REPLICAS", "READY", "GATEWAY", "REASON", "AGE"]
    assert row.split()[3:5] == ["http://gateway", "Serving"]


async def test_scale(plane: ControlPlane, client: Client, namespace: str) -> None:
    apply(plane, namespace, json.dumps(document()))
    said = plane.kubectl("scale", "simulatordeployment", "stack", "-n", namespace, "--replicas=7")
    assert "scaled" in said
    assert (await stored(client, namespace))["replicas"] == 7


async def test_patches_of_the_requirement(plane: ControlPlane, client: Client, namespace: str) -> None:
    apply(plane, namespace, json.dumps(document("llm-sim-minimal")))
    patch = ("patch", "simulatordeployment", "llm-sim-minimal", "-n", namespace)
    plane.kubectl(*patch, "-p", '{"spec":{"replicas":4}}', "--type=merge")
    balancing = '\n{\n "spec": {\n "loadBalancing": {\n "enabled": true,\n "algorithm": "LEAST_REQUEST"\n }\n }\n}'
    plane.kubectl(*patch, "--type=merge", "-p", balancing)
    spec = await stored(client, namespace, name="llm-sim-minimal")
    assert (spec["replicas"], spec["loadBalancing"]) == (4, {"enabled": True, "algorithm": "LEAST_REQUEST"})


async def test_explain(plane: ControlPlane, namespace: str) -> None:
    async def explained() -> str:  # the server publishes the schema a little later than the resource
        said = await asyncio.to_thread(plane.kubectl, "explain", "simulatordeployment.spec", "--recursive=false")
        assert "inferenceGateway" in said
        return said

    said = await eventually(explained)
    assert "<no description>" not in said
    assert "Gateways in front of the picker." in said
    inner = plane.kubectl("explain", "simdep.spec.decode.resources")
    assert "CPU and memory of a Pod of the stage." in inner


async def test_status_is_written_apart(client: Client, namespace: str) -> None:
    raw = document() | {"status": {"replicas": 9}}
    raw["metadata"]["namespace"] = namespace
    found = await client.create(SIMULATOR_DEPLOYMENT, raw)
    assert "status" not in found


@pytest.mark.parametrize("seed", range(4))
async def test_file_and_server_agree_on_any_document(client: Client, namespace: str, seed: int) -> None:
    """What the one refuses the other does too, and what both take means the same to both."""
    rng = random.Random(seed)
    (version,) = simulator_definition()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    taken = Counter[bool]()
    for _ in range(100):
        raw = document(**fields(schema, rng=rng, share=rng.choice((0.1, 0.2, 0.4))))
        raw["metadata"]["namespace"] = namespace
        on_server, in_file = await dry_run(client, raw), parsed(raw)
        assert (on_server is None) == (in_file is None), raw
        if on_server is not None and in_file is not None:
            assert parse(on_server, source="server").spec == in_file.spec
        taken[in_file is not None] += 1
    assert min(taken[True], taken[False]) > 15  # the guesses are good enough to say something


async def dry_run(client: Client, raw: dict[str, Any]) -> dict[str, Any] | None:
    path = SIMULATOR_DEPLOYMENT.path(raw["metadata"]["namespace"])
    try:
        answer = await client.request("POST", path, body=raw, parameters={"dryRun": "All", "fieldValidation": "Strict"})
    except Invalid:
        return None
    found: dict[str, Any] = json.loads(answer)
    return found


def parsed(raw: dict[str, Any]) -> SimulatorDeployment | None:
    try:
        return parse(raw, source="file")
    except UserError:
        return None

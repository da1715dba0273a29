"""A SchedulerInstall behind real Istio, from an empty cluster to an empty cluster: whatever the way, who was picked
answers.

Pods of kwok are posed by processes at their own addresses, as in test_simulators; the order of the tests is a story.
The proof is always which Pod answered, compared with what the picker decided.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.istio.inside.conftest import ROOT, ours
from tests.istio.mesh import Mesh, fetch
from tests.waiting import wait_until

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.cluster.facts import Focus
from pointsman.doctor.findings import Finding, first_cause
from pointsman.doctor.gather.cluster import Wish, gather
from pointsman.doctor.gather.reach import Reach
from pointsman.kube import connect

HERE, THERE = "llm-d-inference-scheduler", "llm-d-sim"
GATEWAY = "infra-inference-scheduling-inference-gateway"
PICKER = "gaie-inference-scheduling-epp"
ROUTE = "llm-d-inference-scheduling"
PORT, TLS_PORT, ADMIN = 28_890, 28_891, 29_903
CALM = 2.0
MANAGED = "app.kubernetes.io/managed-by=pointsman-operator"
KINDS = (
    "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,endpointslices,gateways,httproutes,"
    "referencegrants,inferencepools,destinationrules,envoyfilters,simulatordeployments,schedulerinstalls"
)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Answer:
    """What came back, from whom, and after how long."""

    status: int
    pod: str
    seconds: float


def sample(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "config" / "samples" / f"sim_v1alpha1_{name}.yaml").read_text())
    return document


def get(mesh: Mesh, namespace: str, kind: str, name: str) -> dict[str, Any]:
    text = mesh.plane.kubectl("-n", namespace, "get", kind, name, "-o", "json", "--ignore-not-found")
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def send(prompt: str, *, port: int = PORT, host: str = "", patience: float = 20, **headers: str) -> Answer:
    """Send a completion through the gateway."""
    body = json.dumps({"model": "random", "prompt": prompt, "max_tokens": 2}).encode()
    headers = {"content-type": "application/json", **({"host": host} if host else {}), **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", data=body, headers=headers)
    began = time.monotonic()
    try:
        answer = _DIRECT.open(request, timeout=patience)
    except urllib.error.HTTPError as error:
        answer = error
    except OSError:
        return Answer(0, "", time.monotonic() - began)
    with answer:
        answer.read()
        return Answer(answer.status, str(answer.headers["x-inference-pod"]), time.monotonic() - began)


@dataclass
class Posed:
    """A picker's Pod, which is a process here."""

    mesh: Mesh
    address: str
    process: subprocess.Popen[bytes]
    command: list[str]
    environment: dict[str, str]

    def picked(self) -> tuple[str, str]:
        """Return the last request that was decided, and the address that was picked for it."""
        bearer = {"authorization": f"Bearer {self.mesh.plane.tokens['admin']}"}
        asked = urllib.request.Request(f"http://{self.address}:9090/debug/decisions?last=1", headers=bearer)
        with _DIRECT.open(asked, timeout=5) as answer:
            decisions = json.load(answer)["decisions"]
        return (decisions[-1]["request_id"], decisions[-1]["picked"][0]) if decisions else ("", "")

    def start(self) -> None:
        """Run the picker, again if it has ended."""
        self.process = self.mesh.spawn("picker", self.command, self.environment)
        # kwok calls the Pod ready before that.
        wait_until(lambda: fetch(f"http://{self.address}:9090/healthz")[0] == 200)

    @contextmanager
    def dead(self) -> Iterator[None]:
        """End it, and start it again afterwards; its Pod is Ready all the time."""
        self.process.kill()
        self.process.wait(20)
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Stop it in the middle of whatever it does, and let it go on afterwards."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def pose_picker(mesh: Mesh, folder: Path, *, namespace: str, name: str = PICKER) -> Posed:
    """Run the picker as its Deployment says."""
    (pod,) = wait_until(lambda: mesh.pods(f"app={name}", namespace=namespace))
    for key, text in get(mesh, namespace, "configmap", f"{name}-config")["data"].items():
        (folder / key).write_text(text)
    flags = [word.replace("/etc/epp/", f"{folder}/") for word in pod["spec"]["containers"][0]["args"]]
    address = str(pod["status"]["podIP"])
    environment = {
        **os.environ,
        "KUBECONFIG": str(mesh.plane.kubeconfig("admin")),
        "NAMESPACE": namespace,
        "POD_NAME": pod["metadata"]["name"],
    }
    command = ours("epp", *flags, "--host", address)
    posed = Posed(mesh, address, mesh.spawn("picker", command, environment), command, environment)
    wait_until(lambda: fetch(f"http://{address}:9090/healthz")[0] == 200)
    return posed


def simulators(mesh: Mesh) -> list[dict[str, Any]]:
    return mesh.pods("llm-d.ai/role=decode", namespace=THERE)


@pytest.fixture(scope="module")
def picker(mesh: Mesh, operator: None, tmp_path_factory: pytest.TempPathFactory) -> Posed:
    """An install, its Pods posed; returns its picker."""
    for namespace in (HERE, THERE):
        mesh.plane.kubectl("create", "namespace", namespace)
    stack = sample("simulatordeployment_minimal")
    stack["spec"]["replicas"] = 3
    install = sample("schedulerinstall")
    install["spec"]["gateway"]["listenerPort"] = PORT
    mesh.apply(stack, install)
    for pod in wait_until(lambda: [found for found in [simulators(mesh)] if len(found) == 3])[0]:
        address, name = pod["status"]["podIP"], pod["metadata"]["name"]
        flags = pod["spec"]["containers"][0]["args"]
        mesh.spawn(name, ours("sim", *flags, "--host", address), {"POD_NAME": name, "POD_IP": address})
        wait_until(lambda address=address: fetch(f"http://{address}:8200/health")[0] == 200)  # type: ignore[misc]
    posed = pose_picker(mesh, tmp_path_factory.mktemp("picker"), namespace=HERE)
    mesh.plane.kubectl("-n", HERE, "wait", "--for=condition=Programmed", f"gateway/{GATEWAY}", "--timeout=60s")
    mesh.pose(GATEWAY, admin_port=ADMIN, namespace=HERE)
    return posed


def ready(mesh: Mesh, way: str, *, namespace: str = HERE, name: str = "llm-sched-install") -> None:
    """Wait until the install is ready, and for a way to be its way."""

    def asked() -> bool:
        live = get(mesh, namespace, "schedulerinstall", name)
        truth = {one["type"]: one["status"] for one in live["status"]["conditions"]}
        current = live["status"]["observedGeneration"] == live["metadata"]["generation"]
        assert current and truth["Ready"] == "True" and live["status"]["way"] == way, live["status"]
        return True

    wait_until(asked)


def follows(mesh: Mesh, picker: Posed, *, count: int = 12, size: int = 0, **how: Any) -> set[str]:
    """Send requests, see each answered by the Pod that was picked for it, and return which Pods these were."""
    names = {f"{pod['status']['podIP']}:8200": pod["metadata"]["name"] for pod in simulators(mesh)}
    served = set()
    for number in range(count):
        before = picker.picked()
        answer = send(f"{time.monotonic_ns()} prompt {number} " + "x" * size, **how)
        after = picker.picked()
        assert answer.status == 200, answer
        assert after[0] != before[0], "the picker was not asked"
        assert names[after[1]] == answer.pod
        served.add(answer.pod)
    return served


def settles(mesh: Mesh, picker: Posed, **how: Any) -> None:
    """Wait until the gateway has heard of the last change: then all requests are as picked for `CALM` seconds.

    Three in a row would not tell: on a fast machine they go by what the gateway knew before.
    """

    def asked() -> bool:
        end = time.monotonic() + CALM
        while time.monotonic() < end:
            follows(mesh, picker, count=3, **how)
            time.sleep(CALM / 10)
        return True

    wait_until(asked)


def test_the_picker_of_another_namespace_is_followed(mesh: Mesh, picker: Posed) -> None:
    ready(mesh, "EndpointSlice")
    settles(mesh, picker)
    assert len(follows(mesh, picker, count=20)) == 3
    follows(mesh, picker, count=3, size=200_000)


def test_the_doctor_finds_nothing(mesh: Mesh, picker: Posed) -> None:
    """Of the picker only a Service without a selector is in the pool's namespace; its account is where it runs."""
    wish = Wish(focus=Focus(namespace=HERE, gateway=GATEWAY), envoy=f"http://127.0.0.1:{ADMIN}")

    async def asked() -> list[Finding]:
        async with connect(mesh.plane.kubeconfig("admin")) as client, Reach(()) as reach:
            found = await gather(client, reach, wish, now=lambda: datetime.now(UTC), nonce=os.urandom(4).hex())
        return examine(found.cluster)

    findings = asyncio.run(asked())
    assert first_cause(findings) is None, first_cause(findings)
    told = {one.check: one.verdict for one in findings}
    assert told["the picker's account may follow Pods and pools"] == "ok"
    assert told["the answer comes from the picked Pod"] == "ok"


def other_pod(mesh: Mesh, picked: str) -> str:
    return next(str(pod["status"]["podIP"]) for pod in simulators(mesh) if pod["metadata"]["name"] != picked)


def test_a_forged_header_decides_nothing_and_is_removed_before_the_picker_is_asked(mesh: Mesh, picker: Posed) -> None:
    for _ in range(5):
        forged = f"{other_pod(mesh, send('who').pod)}:8200"
        headers: dict[str, Any] = {"x-gateway-destination-endpoint": forged}
        follows(mesh, picker, count=1, **headers)
    chain = filters(PORT)
    assert chain[0] == "llm-d.forget-forged-headers"
    assert chain.index("llm-d.forget-forged-headers") < chain.index("envoy.filters.http.ext_proc")


def dump() -> Any:
    return json.loads(fetch(f"http://127.0.0.1:{ADMIN}/config_dump?include_eds")[2])


def filters(port: int) -> list[str]:
    """Return the HTTP filters of a listener of the gateway, in order."""
    for config in dump()["configs"]:
        for one in config.get("dynamic_listeners", ()):
            listener = one.get("active_state", {}).get("listener", {})
            if listener.get("address", {}).get("socket_address", {}).get("port_value") == port:
                (manager,) = listener["filter_chains"][0]["filters"]
                return [each["name"] for each in manager["typed_config"]["http_filters"]]
    raise LookupError(f"no listener on {port}")


def http_route(name: str, backend: dict[str, Any], **rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": HERE},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": [f"{name}.example"],
            "rules": [{"backendRefs": [{"namespace": THERE, **backend}], **rule}],
        },
    }


def goes_around(picker: Posed, host: str) -> bool:
    """Tell whether a request is served and nobody is asked; before a route is known, ours takes it for any host."""
    before = picker.picked()
    return send("plain", host=host).status == 200 and picker.picked() == before


GRANT: dict[str, Any] = {
    "apiVersion": "gateway.networking.k8s.io/v1beta1",
    "kind": "ReferenceGrant",
    "metadata": {"name": "plain", "namespace": THERE},
    "spec": {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": HERE}],
        "to": [{"group": "", "kind": "Service"}],
    },
}
POOL = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "gaie-inference-scheduling"}


def test_other_routes_are_left_alone_and_one_with_cors_is_repaired(mesh: Mesh, picker: Posed) -> None:
    cors = {"type": "CORS", "cors": {"allowOrigins": ["https://a.example"]}}
    plain = http_route("plain", {"name": "gaie-inference-scheduling-proxy", "port": 8200})
    mesh.apply(GRANT, plain, http_route("cors", POOL, filters=[cors]))
    wait_until(lambda: goes_around(picker, "plain.example"))
    before = picker.picked()
    assert {send(f"plain {n}", host="plain.example").status for n in range(6)} == {200}
    assert picker.picked() == before  # nobody was asked
    settles(mesh, picker, host="cors.example")
    follows(mesh, picker, count=6, host="cors.example")


@pytest.mark.parametrize("way", ["RoutePatch", "FilterPatch"])
def test_patched_ways(mesh: Mesh, picker: Posed, way: str) -> None:
    patch = json.dumps({"spec": {"routing": {"way": way}}})
    mesh.plane.kubectl("-n", HERE, "patch", "schedinst", "llm-sched-install", "--type=merge", "-p", patch)
    ready(mesh, way)
    settles(mesh, picker)
    assert len(follows(mesh, picker, count=15)) == 3
    follows(mesh, picker, count=2, size=200_000)
    assert goes_around(picker, "plain.example")


def test_envoy_has_refused_nothing_that_istio_sent(mesh: Mesh, picker: Posed) -> None:
    """Four ways have been there by now, and what each of them says is in force."""
    told = fetch(f"http://127.0.0.1:{ADMIN}/stats?filter=update_rejected")[2].split("\n")
    counts = {line.rpartition(": ")[0]: int(line.rpartition(": ")[2]) for line in told if ": " in line}
    assert counts and not any(counts.values()), counts


def test_a_picker_that_is_dead_or_hung_neither_hangs_nor_fails_requests(mesh: Mesh, picker: Posed) -> None:
    """For as long as it takes to notice, requests may fail; then none does, and none has hung."""
    patch = json.dumps({"spec": {"routing": {"way": None}}})
    mesh.plane.kubectl("-n", HERE, "patch", "schedinst", "llm-sched-install", "--type=merge", "-p", patch)
    ready(mesh, "EndpointSlice")
    settles(mesh, picker)
    for trouble in (picker.dead, picker.hung):
        with trouble():
            answers = [send("while it is away", patience=30)]
            wait_until(lambda answers=answers: is_calm(answers), every=0.1)  # type: ignore[misc]
            print(trouble.__name__, [(one.status, round(one.seconds, 1)) for one in answers[:8]], len(answers))
            assert max(one.seconds for one in answers) < 20
        settles(mesh, picker)


def test_in_fail_close_nobody_answers_whom_nobody_picked(mesh: Mesh, picker: Posed) -> None:
    """While the picker is dead or hung requests are refused, soon, and none goes to a Pod that was not picked."""
    set_mode(mesh, "FailClose")
    settles(mesh, picker)
    for trouble in (picker.dead, picker.hung):
        with trouble():
            answers = [send("while it is away", patience=30) for _ in range(12)]
            print(trouble.__name__, [(one.status, round(one.seconds, 1)) for one in answers])
            assert {one.status for one in answers} <= {500, 503, 504}, answers
            assert max(one.seconds for one in answers) < 20
            assert all(one.seconds < 2 for one in answers[-3:]), answers
        settles(mesh, picker)
    set_mode(mesh, "FailOpen")
    settles(mesh, picker)


def set_mode(mesh: Mesh, mode: str) -> None:
    """Have the install say what happens without a picker, and wait until the gateway has heard of it."""
    patch = json.dumps({"spec": {"epp": {"failureMode": mode}}})
    mesh.plane.kubectl("-n", HERE, "patch", "schedinst", "llm-sched-install", "--type=merge", "-p", patch)
    wait_until(lambda: f'"failure_mode_allow": {str(mode == "FailOpen").lower()}' in entry_of(ROUTE))


def entry_of(route: str) -> str:
    """Return what the gateway's first route of an HTTPRoute says of asking the picker; in JSON, all fields told."""
    for config in dump()["configs"]:
        for one in config.get("dynamic_route_configs", ()):
            for host in one["route_config"].get("virtual_hosts", ()):
                for found in host.get("routes", ()):
                    if found.get("name", "").startswith(f"{HERE}.{route}."):
                        entry = found["typed_per_filter_config"].get("envoy.filters.http.ext_proc", {})
                        overrides = {"failure_mode_allow": False, **entry.get("overrides", {})}
                        return json.dumps(overrides)
    return ""


def is_calm(answers: list[Answer]) -> bool:
    answers.append(send("while it is away", patience=30))
    return len(answers) >= 10 and all(one.status == 200 and one.seconds < 2 for one in answers[-10:])


def test_in_one_namespace_over_tls(mesh: Mesh, picker: Posed, tmp_path: Path) -> None:
    install = sample("schedulerinstall_minimal")
    install["metadata"]["namespace"] = THERE
    install["spec"]["gateway"]["listenerPort"] = TLS_PORT
    install["spec"]["epp"]["args"] = ["--secure-serving"]
    install["spec"]["epp"] |= {"name": "second-epp", "poolName": "second"}  # the others are the first install's
    install["spec"]["envoyFilter"] = {"enabled": True}
    mesh.apply(install)
    posed = pose_picker(mesh, tmp_path, namespace=THERE, name="second-epp")
    mesh.plane.kubectl("-n", THERE, "wait", "--for=condition=Programmed", f"gateway/{GATEWAY}", "--timeout=60s")
    mesh.pose(GATEWAY, admin_port=ADMIN + 1, namespace=THERE)
    ready(mesh, "Native", namespace=THERE, name="llm-sched-minimal")
    settles(mesh, posed, port=TLS_PORT)
    assert len(follows(mesh, posed, count=15, port=TLS_PORT)) == 3


def hears_istio() -> bool:
    """Tell whether the gateway is connected to istiod, to which it comes back after a pause."""
    return "connected_state: 1" in fetch(f"http://127.0.0.1:{ADMIN}/stats?filter=control_plane.connected_state")[2]


def test_without_the_extension_and_with_it_again(mesh: Mesh, picker: Posed) -> None:
    mesh.start_istiod(pools=False)
    wait_until(hears_istio)
    ready(mesh, "FilterPatch")
    settles(mesh, picker)
    assert len(follows(mesh, picker, count=15)) == 3
    mesh.start_istiod(pools=True)
    wait_until(hears_istio)
    ready(mesh, "EndpointSlice")
    settles(mesh, picker)


def test_deletion_leaves_nothing_in_either_namespace(mesh: Mesh, picker: Posed) -> None:
    mesh.plane.kubectl("-n", HERE, "delete", "httproutes", "plain", "cors")
    mesh.plane.kubectl("-n", THERE, "delete", "referencegrants", "plain")
    for namespace, name in ((HERE, "llm-sched-install"), (THERE, "llm-sched-minimal")):
        mesh.plane.kubectl("-n", namespace, "delete", "schedinst", name, "--timeout=60s")
    mesh.plane.kubectl("-n", THERE, "delete", "simdep", "--all", "--timeout=60s")
    for namespace in (HERE, THERE):
        wait_until(lambda namespace=namespace: not left(mesh, namespace), within=90)  # type: ignore[misc]


def left(mesh: Mesh, namespace: str) -> set[str]:
    """Return what is in a namespace beside what every namespace has."""
    found = set(mesh.plane.kubectl("-n", namespace, "get", KINDS, "-o", "name").split())
    found |= set(mesh.plane.kubectl("-n", namespace, "get", "pods,replicasets", "-o", "name").split())
    every = {
        "configmap/kube-root-ca.crt",
        "configmap/istio-ca-root-cert",
        "configmap/istio-ca-crl",
        "serviceaccount/default",
    }
    return found - every

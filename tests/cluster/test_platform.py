"""The platform on a real API server with real Helm: three operators from their bundles by make, and a small one that is
interrupted, obstructed, in the way of others, upgraded, taken back and taken down."""

import base64
import gzip
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.cluster.packages import Helm
from tests.cluster.platforms import Killed, SmallPlatform
from tests.unit.bundle.made import crd
from tests.unit.bundle.material import named_folder
from tests.unit.platform.made import bundle_folder, image_of
from tests.waiting import wait_until

from pointsman.core.errors import Unavailable, UserError
from pointsman.platform.debug import write_archive
from pointsman.platform.deploy import JournalStore, Rules
from pointsman.platform.journal import NAME, NAMESPACE, Journal
from pointsman.platform.steps import MOST_DEFINITION

CRD = "widgets.example.com"
ROOT = Path(__file__).parents[2]
OPERATORS = {"cert-manager-operator": "1.15.2", "sail-operator": "3.2.1", "lws-operator": "1.0.0"}
GATEWAYS = {"kind": "Gateway", "plural": "gateways"}
WEBHOOKS = {
    "MutatingWebhookConfiguration": "istio-sidecar-injector",
    "ValidatingWebhookConfiguration": "istio-validator-istio-system",
}


@pytest.fixture
def platform(bare: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallPlatform]:
    """A platform of one component in a namespace of its own; what it leaves is taken away."""
    helm = bare.assets.find("helm")
    if helm is None or not bare.complete:
        pytest.skip("no helm among the programs of the control plane: tools/kube/build makes one")
    monkeypatch.setenv("PATH", str(bare.assets.directory), prepend=":")
    made = SmallPlatform(tmp_path, bare)
    made.write(f"thing-{secrets.token_hex(3)}")
    yield made
    # Namespaces are left behind: each test has its own, and the control plane goes with this file.
    Helm(helm, bare)("uninstall", name_of(made), "--namespace", name_of(made), "--ignore-not-found")
    bare.kubectl("delete", "crd", CRD, "--ignore-not-found")
    bare.kubectl("delete", "configmap", NAME, "-n", NAMESPACE, "--ignore-not-found")


def name_of(platform: SmallPlatform) -> str:
    return str(json.loads((platform.root / "platform.yaml").read_text())["components"][0]["name"])


def steps(platform: SmallPlatform) -> list[str]:
    return [line.rpartition(": ")[2] for line in platform.said if line.startswith("[")]


def get(plane: ControlPlane, *what: str) -> Any:
    return json.loads(plane.kubectl("get", *what, "-o", "json"))


class FakeMesh(threading.Thread):
    """istiod and its operator as far as they fight: each undoes what the other wrote, until told to leave it alone."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self._over = threading.Event()
        self.writes = 0

    def stop(self) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        for kind, name in WEBHOOKS.items():
            self._plane.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(self._document(kind, name)))
        while not self._over.is_set():
            for kind, name in WEBHOOKS.items():
                live = self._ask("GET", kind, name)
                if (live["metadata"].get("annotations") or {}).get("sailoperator.io/ignore") != "true":
                    self.writes += 1
                    change = {"webhooks": [{**live["webhooks"][0], "timeoutSeconds": 1 + self.writes % 2}]}
                    self._ask("PATCH", kind, name, change)
            self._over.wait(0.05)

    def _ask(self, method: str, kind: str, name: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self._plane.server}/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{name}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {self._plane.tokens['admin']}",
                "content-type": "application/merge-patch+json",
            },
        )
        with urllib.request.urlopen(request, timeout=30, context=self._plane._context) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _document(self, kind: str, name: str) -> dict[str, Any]:
        hook = {
            "name": "x.istio.io",
            "clientConfig": {"service": {"namespace": "istio-system", "name": "istiod"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "rules": [
                {"apiGroups": ["none.example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
            ],
        }
        version = "admissionregistration.k8s.io/v1"
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}


@pytest.fixture
def mesh(bare: ControlPlane) -> Iterator[FakeMesh]:
    made = FakeMesh(bare)
    made.start()
    yield made
    made.stop()
    for kind, name in WEBHOOKS.items():
        bare.kubectl("delete", kind, name, "--ignore-not-found")


def make(target: str, *, plane: ControlPlane, **variables: str) -> str:
    """Run a make target as people do, on a copy of the platform; return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig("admin")), "HOME": str(plane.directory)}
    # Below `make test` it would say which folder it enters.
    quiet = ("--no-print-directory", "-o", ".venv/.runtime")
    command = ["make", *quiet, target, *(f"{name}={value}" for name, value in variables.items())]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.timeout(600)
def test_the_three_operators_by_make_from_deploy_to_undeploy(
    bare: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mesh: FakeMesh
) -> None:
    """What requirement and README promise, with the real bundles; Pods are a fake node's, and so is istiod."""
    real = named_folder()
    if real is None:
        pytest.skip("NO REAL BUNDLES: set POINTSMAN_BUNDLES or POINTSMAN_DATA")
    helm = bare.assets.find("helm")
    if helm is None:
        pytest.skip("no helm among the programs of the control plane: tools/kube/build makes one")
    monkeypatch.setenv("PATH", str(bare.assets.directory), prepend=":")
    monkeypatch.setenv("POINTSMAN", str(Path(sys.executable).with_name("pointsman")))
    bundles = tmp_path / "bundles"
    shutil.copytree(real, bundles)
    monkeypatch.setenv("POINTSMAN_BUNDLES", str(bundles))
    shutil.copytree(ROOT / "platform", tmp_path / "platform")
    file = str(tmp_path / "platform" / "platform.yaml")
    foreign = crd("gateways.gateway.networking.k8s.io", group="gateway.networking.k8s.io", names=GATEWAYS)
    foreign["metadata"]["annotations"] = {
        "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"
    }
    bare.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(foreign))

    # Charts: the same twice, and clean.
    for name in ("one", "two"):
        make("charts", plane=bare, PLATFORM=file, CHARTS=str(tmp_path / name))
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    for name in OPERATORS:
        assert "0 chart(s) failed" in Helm(helm, bare)("lint", "--strict", str(tmp_path / "one" / name))

    # Deploy, while istiod and the operator are at each other.
    wait_until(lambda: mesh.writes > 4)
    told = make("deploy", plane=bare, PLATFORM=file)
    assert told.count("the operator leaves it to istiod from now on") == 2
    before = mesh.writes
    rows = make("status", plane=bare, PLATFORM=file).splitlines()
    assert mesh.writes == before, "the loop goes on"
    assert [row.split()[:4] for row in rows[1:4]] == [
        [name, version, "pointsman", "healthy"] for name, version in OPERATORS.items()
    ]

    # A new version of one of them.
    newer(bundles / "lws-operator-1.0", bundles / "lws-operator-1.0.1")
    script = tmp_path / "platform" / "lws-operator" / "scripts" / "update-bundle.sh"
    update = subprocess.run([script, "1.0.1"], capture_output=True, text=True, check=True).stdout
    assert "version      1.0.0 → 1.0.1" in update
    assert "right +      delete secrets.example.com in openshift-lws-operator" in update
    assert make("status", plane=bare, PLATFORM=file).splitlines()[3].split() == [
        *("lws-operator", "1.0.0", "pointsman", "healthy", "1.0.1")
    ]
    make("deploy", plane=bare, PLATFORM=file, ARGS="lws-operator")
    assert make("status", plane=bare, PLATFORM=file).splitlines()[3].split()[1] == "1.0.1"

    # And all of it goes, but for what was there before.
    gone = make("undeploy", plane=bare, PLATFORM=file)
    assert "left definition gateways.gateway.networking.k8s.io: it belongs to" in gone
    assert [each["metadata"]["name"] for each in get(bare, "crd")["items"]] == ["gateways.gateway.networking.k8s.io"]
    assert not {"istio-system", "cert-manager", "openshift-lws-operator"} & set(bare.kubectl("get", "ns").split())
    bare.kubectl("delete", "crd", "gateways.gateway.networking.k8s.io")


def newer(old: Path, new: Path) -> None:
    """Make a bundle of the next version: other images, one more right."""
    shutil.copytree(old, new)
    path = new / "manifests" / "leader-worker-set.clusterserviceversion.yaml"
    csv = yaml.safe_load(path.read_text())
    csv["metadata"]["name"], csv["spec"]["version"] = "leader-worker-set.v1.0.1", "1.0.1"
    rule = {"apiGroups": ["example.com"], "resources": ["secrets"], "verbs": ["delete"]}
    csv["spec"]["install"]["spec"]["permissions"][0]["rules"].append(rule)
    path.write_text(yaml.safe_dump(csv))


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def test_a_run_killed_in_every_step_is_resumed_where_it_was(
    platform: SmallPlatform, bare: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies after one more step has had its effect and before that is noted: the worst moment there is."""
    real = JournalStore.write
    order = ["namespace", "definitions", "presync", "install", "wait", "postsync"]
    noted: list[str] = []

    async def dying(self: JournalStore, journal: Journal) -> Journal:
        fresh = [step for step in journal.done if step.rpartition(": ")[2] == order[len(noted)]]
        if fresh and not journal.finished:
            noted.append(fresh[0])
            raise Killed
        return await real(self, journal)

    for number in range(len(order)):
        monkeypatch.setattr(JournalStore, "write", dying)
        with pytest.raises(Killed):
            await platform.deploy()
        assert steps(platform)[-1] == order[number]
        # The next run notes this step, and dies one step later.
        monkeypatch.setattr(JournalStore, "write", real)
        platform.kill_at = order[number + 1] if number + 1 < len(order) else "never"
        if number + 1 < len(order):
            with pytest.raises(Killed):
                await platform.deploy()
            skipped = [line for line in platform.said if line.endswith("done by the interrupted run")]
            assert len(skipped) == number
        platform.kill_at = ""
    assert await platform.deploy() == 0
    name = name_of(platform)
    assert get(bare, "widget", "first", "-n", name)["metadata"]["labels"]["platform.llm-d.io/step"] == "postsync"
    async with platform.session() as session:
        (row,) = await session.status()
    assert row.cells() == (name, "1.2.3", "pointsman", "healthy", "–")
    assert await platform.undeploy() == []
    assert name not in bare.kubectl("get", "namespaces")


async def test_a_release_that_helm_died_at_is_mended(platform: SmallPlatform, bare: ControlPlane) -> None:
    assert await platform.deploy() == 0
    name = name_of(platform)
    (secret,) = get(bare, "secret", "-n", name, "-l", "owner=helm")["items"]
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    release = json.loads(gzip.decompress(packed))
    for status in ("pending-upgrade", "pending-install"):
        release["info"]["status"] = status
        release["version"] = 1 if status == "pending-install" else 2
        body = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        labels = {"owner": "helm", "name": name, "status": status, "version": str(release["version"])}
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {
                "name": f"sh.helm.release.v1.{name}.v{release['version']}",
                "namespace": name,
                "labels": labels,
            },
            "data": {"release": body},
        }
        if status == "pending-install":
            bare.kubectl("delete", "secret", "-n", name, "-l", "owner=helm")
        bare.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(document))
        assert await platform.deploy() == 0
        assert any(f"the release is {status}" in line for line in platform.said), platform.said
    assert get(bare, "deployment", "manager", "-n", name)["status"]["availableReplicas"] == 1


async def test_an_api_server_that_restarts_costs_only_time(platform: SmallPlatform, bare: ControlPlane) -> None:
    back = threading.Thread(target=bare.start_api)

    def at(line: str) -> None:
        if line.endswith(": definitions") and not back.ident:
            bare.kill("kube-apiserver")
            back.start()

    platform.at = at
    platform.timeout = 120
    try:
        assert await platform.deploy() == 0
    finally:
        if back.ident:
            back.join(90)
    assert any("the API server does not answer" in line for line in platform.said)
    assert steps(platform)[-1] == "postsync"


async def test_the_installation_of_another_is_found_and_left(platform: SmallPlatform, bare: ControlPlane) -> None:
    theirs = crd()
    theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["theirs"] = {"type": "string"}
    bare.kubectl("apply", "-f", "-", text=json.dumps(theirs))
    before = get(bare, "crd", CRD)
    assert await platform.deploy() == 1
    assert any(f"definition {CRD} belongs to kubectl apply" in line for line in platform.said)
    assert name_of(platform) not in bare.kubectl("get", "namespaces")
    left = await platform.undeploy()
    assert left == [f"left definition {CRD}: it belongs to kubectl apply"]
    after = get(bare, "crd", CRD)
    assert (after["spec"], after["metadata"].get("labels")) == (before["spec"], before["metadata"].get("labels"))


async def test_what_others_put_beside_ours_stays_and_is_told(platform: SmallPlatform, bare: ControlPlane) -> None:
    assert await platform.deploy() == 0
    name = name_of(platform)
    bare.kubectl("create", "configmap", "mine", "-n", name)
    mine = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "mine", "namespace": "default"}}
    bare.kubectl("apply", "-f", "-", text=json.dumps(mine))
    left = await platform.undeploy()
    assert left == [
        f"left definition {CRD}: 1 objects of it are there, which are not ours",
        f"left namespace {name}: there is ConfigMap {name}/mine in it, which is not ours",
    ]
    assert get(bare, "widget", "mine", "-n", "default")
    assert get(bare, "configmap", "mine", "-n", name)
    bare.kubectl("delete", "configmap", "mine", "-n", name)
    assert await platform.undeploy(cascade=True) == []
    assert CRD not in bare.kubectl("get", "crd")


async def test_a_namespace_that_does_not_go_is_waited_for_and_named(
    platform: SmallPlatform, bare: ControlPlane
) -> None:
    name = name_of(platform)
    bare.kubectl("create", "namespace", name)
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": name, "finalizers": ["example.com/hold"]},
    }
    bare.kubectl("apply", "-f", "-", text=json.dumps(held))
    bare.kubectl("delete", "namespace", name, "--wait=false")
    bare.kubectl("wait", f"namespace/{name}", "--for=condition=NamespaceFinalizersRemaining", "--timeout=60s")
    platform.timeout = 1
    with pytest.raises(Unavailable, match=f"Namespace {name} does not go: .*example.com/hold"):
        await platform.deploy()
    async with platform.session() as session:
        told = [str(each) for each in await session.preflight()]
    assert f"fail  namespace: {name} is being deleted: wait for it, or look what holds it" in told
    platform.timeout = 60
    bare.kubectl("patch", "configmap", "held", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert await platform.deploy() == 0


async def test_a_definition_beyond_the_limits_is_refused_before_anything_is_done(
    platform: SmallPlatform, bare: ControlPlane
) -> None:
    huge = crd()
    huge["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "x" * MOST_DEFINITION
    bundle_folder(platform.root / "bundles", crds=[huge])
    with pytest.raises(UserError, match=f"{CRD} has .* bytes, and an API server stores at most"):
        await platform.deploy()
    assert name_of(platform) not in bare.kubectl("get", "namespaces")


async def test_two_runs_at_once_do_not_fight(platform: SmallPlatform) -> None:
    async with platform.session() as session:
        store = JournalStore(session._cluster)
        await store.read()
        await store.write(Journal())
        other = JournalStore(session._cluster)
        await other.read()
        await other.write(Journal(versions={"x": "1"}))
        with pytest.raises(Unavailable, match="another run has written the journal"):
            await store.write(Journal(versions={"y": "1"}))


async def test_a_chart_of_others_gets_its_definitions_by_the_server(
    platform: SmallPlatform, bare: ControlPlane
) -> None:
    """As KServe's does: Helm would neither upgrade them nor have room for them."""
    name = name_of(platform)
    folder = platform.root / name
    for path in ("bundle.yaml", "templates/extra.yaml", "overlay/values.yaml", "overlay/values.schema.json"):
        (folder / path).unlink()
    chart = {
        "Chart.yaml": {"apiVersion": "v2", "name": "others", "version": "3.2.1", "appVersion": "3.2.1"},
        "crds/widgets.yaml": crd(),
        "templates/note.yaml": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note"}},
    }
    for path, document in chart.items():
        (folder / "chart" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "chart" / path).write_text(json.dumps(document))
    spec = {"namespace": name, "chart": "chart"}
    (folder / "component.yaml").write_text(json.dumps(spec))
    assert await platform.deploy() == 0
    assert get(bare, "crd", CRD)["metadata"]["labels"]["platform.llm-d.io/component"] == name
    assert get(bare, "configmap", "note", "-n", name)
    (secret,) = get(bare, "secret", "-n", name, "-l", "owner=helm")["items"]
    packed = gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"])))
    assert b"openAPIV3Schema" not in packed
    async with platform.session() as session:
        (row,) = await session.status()
    assert row.cells()[:4] == (name, "3.2.1", "pointsman", "healthy")


async def test_the_embedded_helm_does_the_same(
    platform: SmallPlatform, bare: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("helm_sdkpy", reason="EMBEDDED HELM NOT TESTED: pip install 'pointsman[helm]' (Python 3.12)")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await platform.deploy() == 0
    async with platform.session() as session:
        assert (await session.status())[0].cells()[3] == "healthy"
    assert await platform.undeploy() == []


async def test_an_upgrade_is_shown_done_and_taken_back(platform: SmallPlatform, bare: ControlPlane) -> None:
    assert await platform.deploy() == 0
    name = name_of(platform)
    bundle_folder(platform.root / "bundles", version="1.3.0", deployments=[image_of("1.3.0")])
    pin = platform.root / name / "bundle.yaml"
    pin.write_text(pin.read_text().replace("1.2.3", "1.3.0"))

    async def row() -> tuple[str, ...]:
        async with platform.session() as session:
            (found,) = await session.status()
        return found.cells()

    assert await row() == (name, "1.2.3", "pointsman", "healthy", "1.3.0")
    for _ in range(2):
        platform.said.clear()
        async with platform.session() as session:
            assert await session.deploy(Rules(), only=lambda _, found: bool(found.upgrade)) == 0
    assert platform.said == ["nothing to do"]
    assert await row() == (name, "1.3.0", "pointsman", "healthy", "–")
    async with platform.session() as session:
        assert await session.roll_back() == 0
    assert (await row())[1] == "1.2.3"
    image = get(bare, "deployment", "manager", "-n", name)["spec"]["template"]["spec"]["containers"][0]["image"]
    assert "sha256" in image


async def test_a_breaking_definition_is_not_applied_unless_accepted(
    platform: SmallPlatform, bare: ControlPlane
) -> None:
    assert await platform.deploy() == 0
    narrower = crd()
    narrower["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = {"z": {"type": "string"}}
    bundle_folder(platform.root / "bundles", crds=[narrower])
    (platform.root / name_of(platform) / "manifests-postsync" / "widget.yaml").unlink()
    with pytest.raises(UserError, match=f"{CRD} would change in 1 breaking ways and was left: say --accept-breaking"):
        await platform.deploy()
    assert await platform.deploy(accept_breaking=True) == 0
    schema = get(bare, "crd", CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(schema["properties"]) == ["z"]


async def test_credentials_reach_every_namespace_and_nobody_else(
    platform: SmallPlatform, bare: ControlPlane, tmp_path: Path
) -> None:
    name, word = name_of(platform), "tell-nobody"
    file = tmp_path / "auth.json"

    def log_in(password: str) -> None:
        pair = base64.b64encode(f"u:{password}".encode()).decode()
        file.write_text(json.dumps({"auths": {"quay.io": {"auth": pair}, "unneeded.example.com": {"auth": pair}}}))

    log_in("old-password")
    document = json.loads((tmp_path / "platform.yaml").read_text())
    document["pullSecret"] = {"from": str(file), "name": "pull"}
    (tmp_path / "platform.yaml").write_text(json.dumps(document))
    assert await platform.deploy() == 0
    for account in ("manager", "operand"):
        assert get(bare, "serviceaccount", account, "-n", name)["imagePullSecrets"] == [{"name": "pull"}]
    log_in(word)
    bare.kubectl("patch", "serviceaccount", "operand", "-n", name, "--type=merge", "-p", '{"imagePullSecrets": null}')
    async with platform.session() as session:
        assert await session.pull_secret() == 0
        files = await session.collect()
    assert f"{name}/operand: has pull now" in platform.said
    assert get(bare, "serviceaccount", "operand", "-n", name)["imagePullSecrets"] == [{"name": "pull"}]
    config = json.loads(base64.b64decode(get(bare, "secret", "pull", "-n", name)["data"][".dockerconfigjson"]))
    assert list(config["auths"]) == ["quay.io"]
    assert base64.b64decode(config["auths"]["quay.io"]["auth"]).decode() == f"u:{word}"
    encoded = base64.b64encode(f"u:{word}".encode()).decode()
    everything = "\n".join([*platform.said, *files.values()])
    assert word not in everything
    assert encoded not in everything
    assert f"{name}/secrets.json" in files
    write_archive(files, tmp_path / "debug.tar.gz")
    assert (tmp_path / "debug.tar.gz").stat().st_mode & 0o077 == 0

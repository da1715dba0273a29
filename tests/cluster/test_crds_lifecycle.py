"""Definitions on a real API server: installed, upgraded, rolled back, adopted and removed, by one owner."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.definitions import ALL, ALPHA, ONE, V1, Console, definition, deployment, pool, version, write
from tests.cluster.packages import Helm
from tests.releases import release

from pointsman.api.inference import BUNDLE_VERSION, GROUP, POOL
from pointsman.crds.marks import MANAGER, STAMP
from pointsman.kube import Kind, Object
from pointsman.operator.kinds import DEPLOYMENT, HTTP_ROUTE

THING = Kind("example.dev", "v1", "Thing", "things")


@pytest.fixture
def console(bare: ControlPlane) -> Iterator[Console]:
    """A cluster without any definition."""
    console = Console(bare, bare.kubeconfig("admin"))
    yield console
    console.clear()


def older(version: str, tmp_path: Path) -> str:
    """Return a file with the pool of an older release."""
    return write(tmp_path / f"{version}.yaml", [release(version)[V1]])


def test_installed_once_and_then_at_rest(console: Console) -> None:
    first = console.crds("install")
    assert (first.code, first.err) == (0, "")
    assert sorted(ALL) == console.there()
    assert first.out.count("created") == len(ALL)
    before = console.all_written()
    for command in ("install", "upgrade"):
        again = console.crds(command)
        assert (again.code, again.out.count("unchanged")) == (0, len(ALL))
    assert console.all_written() == before
    live = console.get(V1)
    assert live["metadata"]["annotations"][STAMP] == "pointsman"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in live["metadata"]["annotations"]
    assert {entry["manager"] for entry in live["metadata"]["managedFields"]} == {MANAGER, "kube-apiserver"}


def test_status_at_a_glance(console: Console) -> None:
    console.apply(release("v1.2.1")[ALPHA], manager="kubectl")
    before = console.crds("status")
    assert before.code == 1
    assert before.out.splitlines()[0].split() == ["DEFINITION", "OWNER", "VERSION", "STORED", "OBJECTS", "VERDICT"]
    assert "missing" in before.out
    console.crds("install")
    console.apply(pool("a"), pool("b"), deployment("istiod", "istio/pilot:1.27.3"))
    after = console.crds("status")
    lines = {line.split()[0]: line.split() for line in after.out.splitlines()[1 : 1 + len(ALL)]}
    assert lines[V1] == [V1, "pointsman", "v1.5.0", "v1", "2", "ok"]
    assert lines[ALPHA] == [ALPHA, "kubectl", "v1.2.1", "v1alpha2", "0", "foreign"]
    assert (
        "warning: Istio 1.27.3 reads only inference.networking.x-k8s.io/v1alpha2: InferencePool "
        "inference.networking.k8s.io/v1 objects will be ignored (2 there now) (default/istiod)"
    ) in after.out
    assert after.code == 0
    console.delete(DEPLOYMENT, "istiod")


def test_from_install_to_uninstall(console: Console, tmp_path: Path) -> None:
    """Install, objects, upgrade, rollback, uninstall refused, objects removed, uninstall."""
    assert console.crds("install", "--file", older("v1.1.0", tmp_path)).code == 0
    console.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
    console.apply(pool("one"), pool("two", namespace="team-b"))
    there = console.get(V1)["spec"]

    told = console.crds("install")
    assert "`pointsman crds upgrade` does it" in told.out
    assert console.get(V1)["spec"] == there

    upgraded = console.crds("upgrade")
    assert upgraded.code == 0, upgraded
    assert "safe     v1: spec.appProtocol: a field is added" in upgraded.out
    live = console.get(V1)
    assert live["metadata"]["annotations"][BUNDLE_VERSION] == "v1.5.0"
    console.apply(pool("one", appProtocol="kubernetes.io/h2c"))

    back = console.crds("upgrade", "--rollback")
    assert back.code == 1
    assert "BREAKING v1: spec.appProtocol: the field is removed" in back.out
    assert console.get(V1)["spec"] == live["spec"]
    back = console.crds("upgrade", "--rollback", "--accept-breaking")
    assert back.code == 0, back
    restored = console.get(V1)
    assert restored["spec"] == there
    assert restored["metadata"]["annotations"][BUNDLE_VERSION] == "v1.1.0"

    refused = console.crds("uninstall")
    assert refused.code == 1
    assert f"in use    {V1}: 1 object in default" in refused.out
    assert f"in use    {V1}: 1 object in team-b" in refused.out
    assert sorted(ALL) == console.there(), "refused means that nothing is deleted"

    console.delete(POOL, "one")
    console.delete(POOL, "two", namespace="team-b")
    gone = console.crds("uninstall")
    assert gone.code == 0, gone
    assert console.there() == []


def test_no_downgrade(console: Console, tmp_path: Path) -> None:
    console.crds("install", *ONE)
    before = console.written(V1)
    back = console.crds("upgrade", "--accept-breaking", "--file", older("v1.4.0", tmp_path))
    assert back.code == 1
    assert "v1.5.0 is there and v1.4.0 is older" in back.out
    assert console.written(V1) == before
    newer = console.crds("upgrade", "--file", older("v1.6.0", tmp_path))
    assert newer.code == 0, newer
    assert "endpointPickerRef may now be left out" in newer.out
    refused = console.crds("upgrade", *ONE)
    assert (refused.code, "v1.6.0 is there and v1.5.0 is older" in refused.out) == (1, True)


def test_drift_is_put_right(console: Console) -> None:
    console.crds("install", *ONE)
    live = console.get(V1)
    ports = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/targetPorts"
    change = [{"op": "replace", "path": f"{ports}/maxItems", "value": 99}]
    console.plane.kubectl("patch", "crd", V1, "--type=json", "-p", json.dumps(change))
    assert "drifted" in console.crds("status", *ONE).out
    fixed = console.crds("install", *ONE)
    assert (fixed.code, "put right" in fixed.out) == (0, True)
    assert console.get(V1)["spec"] == live["spec"]


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        pytest.param(
            {
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "gie", "meta.helm.sh/release-namespace": "infra"},
            },
            "Helm release infra/gie",
            id="helm",
        ),
        pytest.param({"labels": {"olm.managed": "true"}}, "OLM", id="olm"),
    ],
)
def test_adoption(console: Console, marks: Object, name: str) -> None:
    published = release("v1.2.1")[V1]
    metadata = {**published["metadata"], **marks}
    metadata["annotations"] = {**published["metadata"]["annotations"], **marks.get("annotations", {})}
    console.apply(published | {"metadata": metadata}, manager="helm")
    console.apply(pool("kept"))
    before = console.written(V1)

    left = console.crds("install", *ONE)
    assert left.code == 0
    assert f"left      {V1}: belongs to {name}: left alone; `pointsman crds adopt {V1}` takes it over" in left.out
    assert console.written(V1) == before
    assert console.crds("upgrade", *ONE).code == 0
    assert console.written(V1) == before
    refused = console.crds("uninstall", V1)
    assert (refused.code, f"belongs to {name}" in refused.err) == (2, True)

    adopted = console.crds("adopt", V1)
    assert adopted.code == 0, adopted
    assert f"note: {name} does not know" in adopted.out
    live = console.get(V1)
    assert live["metadata"]["annotations"][STAMP] == "pointsman"
    assert live["metadata"]["annotations"][BUNDLE_VERSION] == "v1.5.0"
    assert live["metadata"]["uid"] == before["metadata"]["uid"], "adopted, not made anew"
    assert console.count(POOL) == 1
    assert console.crds("upgrade", "--rollback", "--accept-breaking").code == 0
    assert console.get(V1)["spec"] == before["spec"]


def test_helm_beside_us(console: Console, tmp_path: Path) -> None:
    """The real helm: what it installed is left alone, adopted by name, and said to be helm's list still."""
    program = console.plane.assets.find("helm")
    if program is None:
        pytest.skip("no helm among the programs of the control plane: tools/kube/build makes one")
    helm = Helm(program, console.plane)
    chart = chart_of(tmp_path / "chart", release("v1.2.1")[V1])
    helm("install", "theirs", str(chart), "--namespace", "default")
    console.apply(pool("one"))
    left = console.crds("install", *ONE)
    assert f"{V1}: belongs to Helm" in left.out, left
    assert MANAGER not in {entry["manager"] for entry in console.get(V1)["metadata"]["managedFields"]}
    adopted = console.crds("adopt", V1)
    assert adopted.code == 0, adopted
    assert "note: Helm release default/theirs does not know" in adopted.out
    assert console.get(V1)["metadata"]["annotations"][BUNDLE_VERSION] == "v1.5.0"

    # Their next release does not get past our fields, unless it is told to; then it is put right.
    chart_of(tmp_path / "chart", release("v1.1.0")[V1])
    with pytest.raises(AssertionError, match="pointsman-crds"):
        helm("upgrade", "theirs", str(chart), "--namespace", "default")
    assert console.get(V1)["metadata"]["annotations"][BUNDLE_VERSION] == "v1.5.0"
    helm("upgrade", "theirs", str(chart), "--namespace", "default", "--force-conflicts")
    assert console.get(V1)["metadata"]["annotations"][BUNDLE_VERSION] == "v1.1.0"
    status = console.crds("status", *ONE)
    assert "beside Helm release default/theirs" in status.out, status
    assert console.crds("upgrade", *ONE).code == 0
    assert console.get(V1)["metadata"]["annotations"][BUNDLE_VERSION] == "v1.5.0"
    assert console.count(POOL) == 1
    # A name that is ours first is refused by helm itself.
    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        helm("install", "others", str(chart), "--namespace", "default")


def chart_of(directory: Path, document: Object) -> Path:
    """Write a chart with one definition in its templates, as charts that install CRDs have it."""
    (directory / "templates").mkdir(parents=True, exist_ok=True)
    (directory / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "theirs", "version": "1.0.0"}))
    (directory / "definition.json").write_text(json.dumps({k: v for k, v in document.items() if k != "status"}))
    (directory / "templates" / "crd.yaml").write_text('{{ .Files.Get "definition.json" }}')
    return directory


def test_adoption_of_a_name_that_we_do_not_have(console: Console) -> None:
    ran = console.crds("adopt", "inferencepool.inference.networking.k8s.io")
    assert (ran.code, V1 in ran.err) == (2, True)


def test_uninstall_is_refused_to_consumers(console: Console) -> None:
    console.crds("install", *ONE)
    route = {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": "HTTPRoute",
        "metadata": {"name": "to-pool", "namespace": "default"},
        "spec": {"rules": [{"backendRefs": [{"group": GROUP, "kind": "InferencePool", "name": "pool"}]}]},
    }
    routes = definition(HTTP_ROUTE, version("v1"))
    routes["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    console.apply(routes)
    console.apply(route, deployment("picker", "ghcr.io/llm-d/llm-d-router:v0.10.0", "--pool-name=pool"))
    refused = console.crds("uninstall")
    assert refused.code == 1
    assert "used by HTTPRoute (default/to-pool)" in refused.out
    assert "used by llm-d picker v0.10.0 (default/picker)" in refused.out
    console.apply(pool("one"))
    gone = console.crds("uninstall", "--cascade")
    assert gone.code == 0, gone
    assert console.there() == [str(HTTP_ROUTE)], "the definitions of others stay"
    console.delete(DEPLOYMENT, "picker")


def test_check_judges_files_without_touching_anything(console: Console, tmp_path: Path) -> None:
    console.crds("install", "--file", older("v1.0.2", tmp_path))
    before = console.written(V1)
    ran = console.crds("check", older("v1.5.0", tmp_path))
    assert ran.code == 1
    assert "BREAKING v1: spec.targetPorts.x-kubernetes-validations" in ran.out
    assert console.crds("check", older("v1.0.2", tmp_path)).code == 0
    assert console.written(V1) == before
    blocked = console.crds("upgrade", *ONE)
    assert (blocked.code, "1 breaking change against v1.0.2" in blocked.out) == (1, True)
    assert console.written(V1) == before
    assert console.crds("upgrade", *ONE, "--accept-breaking").code == 0


def test_two_installations_do_not_take_from_each_other(console: Console) -> None:
    console.crds("install", *ONE, "--owner", "team-a")
    before = console.all_written()
    for command in ("install", "upgrade"):
        ran = console.crds(command, *ONE, "--owner", "team-b")
        assert "belongs to pointsman as team-a" in ran.out
    assert console.crds("uninstall", "--owner", "team-b").out == "nothing of ours is there\n"
    assert console.all_written() == before


def test_stored_version_goes_only_after_its_objects_were_rewritten(console: Console, tmp_path: Path) -> None:
    old = definition(THING, version("v1alpha1"))
    assert console.crds("install", "--file", write(tmp_path / "old.yaml", [old])).code == 0
    things = [
        {"apiVersion": "example.dev/v1alpha1", "kind": "Thing", "metadata": {"name": f"t{n}", "namespace": "default"}}
        for n in range(25)
    ]
    console.apply(*things)
    assert stored(console, "t7") == "example.dev/v1alpha1"
    new = write(tmp_path / "new.yaml", [definition(THING, version("v1"))])
    refused = console.crds("upgrade", "--file", new)
    assert (refused.code, "BREAKING v1alpha1: the version is removed" in refused.out) == (1, True)
    assert console.get(str(THING))["status"]["storedVersions"] == ["v1alpha1"]
    ran = console.crds("upgrade", "--file", new, "--accept-breaking")
    assert ran.code == 0, ran
    assert "things.example.dev: 25 of 25 objects are stored as v1" in ran.out
    live = console.get(str(THING))
    assert live["status"]["storedVersions"] == ["v1"]
    assert [one["name"] for one in live["spec"]["versions"]] == ["v1"]
    assert "crds.llm-d.io/migration" not in live["metadata"]["annotations"]
    assert console.count(THING) == 25
    assert stored(console, "t7") == "example.dev/v1"


def stored(console: Console, name: str) -> str:
    """Return in which version etcd has a thing."""
    key = base64.b64encode(f"/registry/example.dev/things/default/{name}".encode()).decode()
    answer: Any = console.plane._post("/v3/kv/range", {"key": key})
    return str(json.loads(base64.b64decode(answer["kvs"][0]["value"]))["apiVersion"])

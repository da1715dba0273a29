"""Charts of bundles with the real helm: equal to what `extract` prints, and accepted by a real API server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.controlplane import ControlPlane
from tests.cluster.packages import Helm, by_name
from tests.unit.bundle.made import RULES, bundle, crd, deployment, webhook
from tests.unit.bundle.material import real_bundle

from pointsman.bundle.chart.chart import make_chart
from pointsman.bundle.chart.folder import write_chart
from pointsman.bundle.filters import wanted
from pointsman.bundle.model import Bundle
from pointsman.bundle.reader import read_documents
from pointsman.bundle.render.certificates import CertManager
from pointsman.bundle.render.objects import InstallOptions, render

REAL = ("lws-operator", "cert-manager-operator", "sail-operator")
THERE = "somewhere-else"
VALUES = ("nodeSelector", "tolerations", "imagePullSecrets")


@pytest.fixture(scope="module")
def helm(bare: ControlPlane) -> Helm:
    program = bare.assets.find("helm")
    if program is None:
        pytest.skip("no helm among the programs of the control plane: tools/kube/build makes one")
    return Helm(program, bare)


def hooked() -> Bundle:
    """Return a bundle with all that a chart finds hard: conversion, webhooks, braces, its own name as namespace."""
    home = "acme-operators"
    container = {
        "name": "main",
        "image": "quay.io/acme/main:v1",
        "args": [f"--namespace={home}", "{{ .Values.images }}", "{{`"],
        "env": [{"name": "POD_NAMESPACE", "value": home}, {"name": "NAME", "value": home}],
    }
    convert = webhook("ConversionWebhook", name="convert.example.com", conversionCRDs=["widgets.example.com"])
    rules = [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}]
    check = webhook(name="check.example.com", rules=rules, webhookPath="/check", failurePolicy="Ignore")
    braces = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "{{ nope }}\n{{/* x */}}\n"},
    }
    return bundle(
        modes=["AllNamespaces"],
        deployments=[deployment(containers=[container])],
        webhooks=[convert, check],
        crds=[crd()],
        permissions=[{"serviceAccountName": "manager", "rules": RULES}],
        others=[braces],
        annotations={"operatorframework.io/suggested-namespace": home, "evil": '{{ fail "value" }}'},
        spec={"displayName": '{{ fail "name" }}', "relatedImages": [{"name": '{{ fail "image" }}', "image": "{{`}}"}]},
    )


def found(name: str) -> Bundle:
    made = hooked() if name == "hooked" else real_bundle(name)
    if made is None:
        pytest.skip("NO REAL BUNDLE: set POINTSMAN_BUNDLES or POINTSMAN_DATA")
    return made


def without_values(document: Any) -> Any:
    """Return an object without the empty places that values.yaml fills."""
    if isinstance(document, dict):
        empty = {key for key in VALUES if key in document and not document[key]}
        return {key: without_values(value) for key, value in document.items() if key not in empty}
    return [without_values(each) for each in document] if isinstance(document, list) else document


@pytest.mark.parametrize("name", [*REAL, "hooked"])
def test_helm_renders_what_extract_prints(name: str, helm: Helm, tmp_path: Path) -> None:
    made = found(name)
    options = InstallOptions(namespace=THERE, certificates=CertManager())
    write_chart(make_chart(made, options), made, tmp_path / "chart")
    assert "0 chart(s) failed" in helm("lint", "--strict", str(tmp_path / "chart"))
    text = helm("template", "release", str(tmp_path / "chart"), "--namespace", THERE, "--include-crds")
    rendered = without_values(by_name(read_documents(text.encode(), name="helm")))
    expected = without_values(by_name(list(render(made, options))))
    if name == "hooked":
        definition = expected["CustomResourceDefinition", "", "widgets.example.com"]
        definition["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
        main = expected["Deployment", THERE, "manager"]["spec"]["template"]["spec"]["containers"][0]
        assert main["args"][0] == "--namespace=acme-operators"
        main["args"][0] = f"--namespace={THERE}"
        main["env"][0]["value"] = THERE
    assert rendered == expected


def test_values_reach_every_account_and_image(helm: Helm, tmp_path: Path) -> None:
    made = hooked()
    write_chart(make_chart(made, InstallOptions(namespace="")), made, tmp_path)
    values = ("--set=imageMirror=mirror.example.com/acme", '--set-json=imagePullSecrets=[{"name": "pull"}]')
    text = helm("template", "release", str(tmp_path), "--namespace", THERE, *values)
    rendered = by_name(read_documents(text.encode(), name="helm"))
    assert rendered["ServiceAccount", THERE, "manager"]["imagePullSecrets"] == [{"name": "pull"}]
    pod = rendered["Deployment", THERE, "manager"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "mirror.example.com/acme/acme/main:v1"
    with pytest.raises(AssertionError, match="imageMiror"):
        helm("template", "release", str(tmp_path), "--set=imageMiror=typo")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Return a namespace of one test's own; the control plane goes with this file, and everything in it."""
    return f"place-{len(request.node.name)}"


def test_a_chart_with_its_own_certificates_installs_and_keeps_them(
    bare: ControlPlane, helm: Helm, tmp_path: Path, place: str
) -> None:
    made = hooked()
    write_chart(make_chart(made, InstallOptions(namespace=""), own_certificates=True), made, tmp_path)
    helm("install", "release", str(tmp_path), "--namespace", place, "--create-namespace")
    bare.kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s")

    def secret() -> dict[str, str]:
        text = bare.kubectl("get", "secret", "manager-service-cert", "-n", place, "-o", "jsonpath={.data}")
        data: dict[str, str] = json.loads(text)
        return data

    first = secret()
    path = "{.webhooks[0].clientConfig.caBundle}"
    assert first["ca.crt"] == bare.kubectl(
        "get", "validatingwebhookconfiguration", "check.example.com", "-o", f"jsonpath={path}"
    )
    helm("upgrade", "release", str(tmp_path), "--namespace", place, '--set-json=nodeSelector={"a":"b"}')
    assert secret() == first
    spec = bare.kubectl(
        "get", "deployment", "manager", "-n", place, "-o", "jsonpath={.spec.template.spec.nodeSelector}"
    )
    assert json.loads(spec) == {"a": "b"}


def test_the_charts_of_two_real_operators_install(bare: ControlPlane, helm: Helm, tmp_path: Path, place: str) -> None:
    """The mesh's has 19 definitions, two of them larger than what a client may apply."""
    for name in ("lws-operator", "sail-operator"):
        made = found(name)
        files = make_chart(
            made,
            InstallOptions(namespace="", certificates=CertManager()),
            keep=lambda objects: wanted(
                objects, exclude=['.kind | startswith("Console")', '.kind == "ServiceMonitor"']
            ),
        )
        write_chart(files, made, tmp_path / name)
        helm("install", "release", str(tmp_path / name), "--namespace", place, "--create-namespace")
        helm("uninstall", "release", "--namespace", place)
    each = '{.metadata.name}={.spec.versions[*].subresources.status}{"\\n"}'
    kept = dict(
        line.split("=")
        for line in bare.kubectl("get", "crd", "-o", f"jsonpath={{range .items[*]}}{each}{{end}}").splitlines()
    )
    shipped = [path.stem for name in ("lws-operator", "sail-operator") for path in (tmp_path / name / "crds").iterdir()]
    assert len(shipped) == 20
    assert all("{}" in kept[crd_name] for crd_name in shipped)

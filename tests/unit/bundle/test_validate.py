"""Every rule, broken once: the complaint names it, and a good bundle breaks none."""

from typing import Any

import pytest
from tests.unit.bundle.made import bundle, crd, deployment, files, webhook

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Refused
from pointsman.bundle.validate import RULES, check, findings


def conversion(name: str = "c.example.com", crds: tuple[str, ...] = ("widgets.example.com",)) -> dict[str, Any]:
    return webhook("ConversionWebhook", name=name, conversionCRDs=list(crds))


ALL = ["AllNamespaces"]
BROKEN: dict[str, dict[str, Any]] = {
    "deployment-unique": {"deployments": [deployment(), deployment()]},
    "deployment-name": {"deployments": [deployment("Upper_Case")]},
    "crd-unique": {"crds": [crd(), crd()]},
    "owned-crd-exists": {"owned": ["absent.example.com"]},
    "package-name": {"package": ""},
    "conversion-all-namespaces": {"webhooks": [conversion()], "crds": [crd()]},
    "webhook-deployment": {"webhooks": [webhook(deploymentName="absent")]},
    "webhook-unique": {"webhooks": [webhook(), webhook()]},
    "webhook-name": {"webhooks": [webhook(name="Not DNS")]},
    "conversion-unique": {"modes": ALL, "webhooks": [conversion("a.b"), conversion("c.d")], "crds": [crd()]},
    "conversion-owned": {"modes": ALL, "webhooks": [conversion(crds=("other.example.com",))]},
    "webhook-rules": {"webhooks": [webhook(rules=[{"apiGroups": ["*"], "resources": ["pods"]}])]},
    "supported-kinds": {"others": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]},
    "names": {"others": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}]},
    "install-strategy": {"spec": {"install": {"strategy": "magic"}}},
    "webhook-type": {"webhooks": [webhook("ValidatingWebhook")]},
    "api-services": {"spec": {"apiservicedefinitions": {"owned": [{"group": "g", "version": "v1"}]}}},
}


def test_every_rule_has_an_example() -> None:
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_named(rule: str) -> None:
    found = bundle(**BROKEN[rule])
    assert {each.rule for each in findings(found)} == {rule}
    with pytest.raises(Refused, match=rf"^thing: .*\[{rule}\]$"):
        check(found)


def test_a_good_bundle_breaks_none() -> None:
    check(bundle(modes=ALL, webhooks=[conversion(), webhook()], crds=[crd()]))


@pytest.mark.parametrize("resource", ["*", "ValidatingWebhookConfigurations", "mutatingwebhookconfiguration"])
def test_webhooks_may_not_guard_webhooks(resource: str) -> None:
    rule = {"apiGroups": ["admissionregistration.k8s.io"], "resources": [resource]}
    assert [each.rule for each in findings(bundle(webhooks=[webhook(rules=[rule])]))] == ["webhook-rules"]


def test_an_object_without_a_version_of_its_kind_is_refused() -> None:
    (found,) = findings(bundle(others=[{"kind": "ConfigMap", "metadata": {"name": "c"}}]))
    assert str(found) == "ConfigMap 'c' among the manifests has no apiVersion [names]"


def test_several_complaints_come_at_once() -> None:
    with pytest.raises(Refused, match=r"2 rules are broken:\n  .*\[webhook-deployment\]\n  .*\[webhook-name\]"):
        check(bundle(webhooks=[webhook(name="Not DNS", deploymentName="absent")]))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param({"manifests/csv.yaml": None}, "one-csv", id="no ClusterServiceVersion"),
        pytest.param({"manifests/two.yaml": b"kind: ClusterServiceVersion"}, "one-csv", id="two of them"),
        pytest.param({"manifests/deep/x.yaml": b"kind: ConfigMap"}, "flat-manifests", id="sub-directory"),
        pytest.param({"manifests/.x.yaml": b"kind: ConfigMap"}, "flat-manifests", id="hidden file"),
        pytest.param({"manifests/x.yaml": b"a: 1"}, "object-kind", id="no object"),
        pytest.param({"manifests/x.yaml": b"a: [1"}, "yaml", id="no YAML"),
        pytest.param({"metadata/annotations.yaml": b"annotations: {a: 1}"}, "annotations", id="annotation of a number"),
        pytest.param({"metadata/annotations.yaml": b"- a"}, "metadata", id="annotations in a list"),
        pytest.param({"metadata/properties.yaml": b"properties: 1"}, "properties", id="properties"),
        pytest.param({"metadata/dependencies.yaml": b"dependencies: {}\n"}, None, id="no dependencies"),
        pytest.param({"metadata/dependencies.yaml": b"dependencies: [1]"}, "dependencies", id="dependencies"),
        pytest.param({"manifests/x.package.yaml": b"packageName: x\nchannels: []"}, None, id="a package file"),
        pytest.param(
            {"manifests/csv.yaml": b"kind: ClusterServiceVersion\nspec: {install: {spec: {deployments: x}}}"},
            "csv",
            id="a wrong type",
        ),
    ],
)
def test_a_bundle_that_cannot_be_read_is_refused_with_a_rule(change: dict[str, bytes | None], rule: str | None) -> None:
    found = {path: text for path, text in (files() | change).items() if text is not None}
    if rule is None:
        load_bundle(found, name="thing")
        return
    with pytest.raises(Refused) as caught:
        load_bundle(found, name="thing")
    assert [each.rule for each in caught.value.findings] == [rule]


def test_properties_are_added_to_the_annotation_that_operators_get() -> None:
    extra = {"metadata/properties.yaml": b"properties: [{type: b, value: 1}]"}
    found = load_bundle(files(annotations={"olm.properties": '[{"type":"a"}]'}) | extra, name="thing")
    assert found.csv.metadata.annotations["olm.properties"] == '[{"type":"a"},{"type":"b","value":1}]'


def test_properties_are_written_as_go_writes_them() -> None:
    extra = {"metadata/properties.yaml": "properties: [{value: {version: '>=1 <2', kind: Größe}, type: b}]".encode()}
    found = load_bundle(files() | extra, name="thing")
    expected = r'[{"type":"b","value":{"kind":"Größe","version":"\u003e=1 \u003c2"}}]'
    assert found.csv.metadata.annotations["olm.properties"] == expected


def test_a_flat_folder_is_named_after_its_csv() -> None:
    flat = {
        path.removeprefix("manifests/"): text for path, text in files(crds=[crd()]).items() if "metadata" not in path
    }
    found = load_bundle(flat | {"README.md": b"# {{"}, name="thing")
    assert (found.package, found.version, len(found.crds)) == ("thing", "1.2.3", 1)

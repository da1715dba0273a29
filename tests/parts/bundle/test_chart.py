"""A chart's files: the same twice, nothing of the namespace left behind, nothing else touched."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bundle.made import RULES, bundle, crd, deployment, webhook
from tests.unit.bundle.material import real_bundle

from pointsman.bundle.chart.chart import make_chart
from pointsman.bundle.chart.folder import write_chart
from pointsman.bundle.chart.templating import Scheme, images_of, templated
from pointsman.bundle.model import Bundle
from pointsman.bundle.render.certificates import CertManager
from pointsman.bundle.render.objects import InstallOptions
from pointsman.bundle.writer import Template, write_document
from pointsman.core.errors import UserError

HOME = "acme-operators"
RELEASE = "{{ .Release.Namespace }}"


def acme() -> Bundle:
    container = {
        "name": "main",
        "image": "quay.io/acme/main@sha256:" + "1" * 64,
        "args": [
            f"--namespace={HOME}",
            "--leader-election-namespace",
            HOME,
            f"--name={HOME}",
            f"--url=https://m.{HOME}.svc:8443/",
        ],
        "env": [
            {"name": "POD_NAMESPACE", "value": HOME},
            {"name": "OPERATOR_NAME", "value": HOME},
            {"name": "RELATED_IMAGE_OPERAND", "value": "quay.io/acme/operand:v1"},
            {"name": "OTHER_NAMESPACE", "value": f"{HOME}-other"},
        ],
    }
    hook = webhook("ConversionWebhook", name="convert.example.com", conversionCRDs=["widgets.example.com"])
    others = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": HOME}],
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "extra"},
            "imagePullSecrets": [{"name": "own"}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "config"},
            "data": {"template": "{{ .Values.x }} }}"},
        },
    ]
    return bundle(
        modes=["AllNamespaces"],
        deployments=[{**deployment(containers=[container], nodeSelector={"os": "linux"}), "name": "manager"}],
        webhooks=[hook, webhook()],
        crds=[crd(), crd("gadgets.example.com")],
        permissions=[{"serviceAccountName": "manager", "rules": RULES}],
        others=others,
        annotations={"operatorframework.io/suggested-namespace": HOME},
    )


def chart(found: Bundle | None = None, **options: Any) -> dict[str, str]:
    return make_chart(found or acme(), InstallOptions(namespace="", certificates=CertManager()), **options)


def test_the_same_bundle_gives_the_same_bytes() -> None:
    assert list(chart().items()) == list(chart().items())


def test_each_object_has_its_file_and_definitions_stand_apart() -> None:
    files = chart()
    assert "crds/gadgets.example.com.yaml" in files
    assert "templates/customresourcedefinition-widgets.example.com.yaml" in files, "its conversion needs the namespace"
    assert "helm.sh/resource-policy: keep" in files["templates/customresourcedefinition-widgets.example.com.yaml"]
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "templates/NOTES.txt", "templates/_helpers.tpl"} < set(
        files
    )
    assert not any("namespace-" in path for path in files)


def test_definitions_are_not_templates_and_not_escaped() -> None:
    found = bundle(crds=[crd(description="{{ x }}")])
    assert "{{ x }}" in chart(found)["crds/widgets.example.com.yaml"]


def test_a_host_that_a_schema_describes_is_no_place_for_the_namespace() -> None:
    described = crd(names={"kind": "Widget", "plural": "widgets", "example": f"reviews.{HOME}.svc.cluster.local"})
    found = bundle(crds=[described], annotations={"operatorframework.io/suggested-namespace": HOME})
    assert f"reviews.{HOME}.svc.cluster.local" in chart(found)["crds/widgets.example.com.yaml"]


def test_the_namespace_is_left_to_helm_wherever_it_is_meant() -> None:
    files = chart()
    manager = files["templates/deployment-manager.yaml"]
    assert f'- "--namespace={RELEASE}"\n' in manager
    assert f'- --leader-election-namespace\n        - "{RELEASE}"\n' in manager
    assert f'- "--url=https://m.{RELEASE}.svc:8443/"' in manager
    assert f'name: POD_NAMESPACE\n          value: "{RELEASE}"' in manager
    assert f'olm.operatorNamespace: "{RELEASE}"' in manager
    assert f'namespace: "{RELEASE}"' in files["templates/clusterrolebinding-reader.yaml"]
    certificate = files["templates/certificate-manager-service-cert.yaml"]
    assert f'- "manager-service.{RELEASE}.svc.cluster.local"' in certificate
    for path in ("validatingwebhookconfiguration-check.example.com", "customresourcedefinition-widgets.example.com"):
        text = files[f"templates/{path}.yaml"]
        assert f'namespace: "{RELEASE}"' in text
        assert f'cert-manager.io/inject-ca-from: "{RELEASE}/manager-service-cert"' in text


def test_the_same_word_as_a_name_stays() -> None:
    manager = chart()["templates/deployment-manager.yaml"]
    assert f"- --name={HOME}\n" in manager
    assert f"name: OPERATOR_NAME\n          value: {HOME}\n" in manager
    assert f"value: {HOME}-other\n" in manager


def test_no_mark_is_left_anywhere() -> None:
    assert not re.search("[\ue000\ue001]", "".join(chart().values()))


def test_images_come_from_values_by_digest_and_through_a_mirror() -> None:
    files = chart()
    assert 'include "thing.image" (dict "root" $ "name" "main") | quote' in files["templates/deployment-manager.yaml"]
    assert (
        'include "thing.image" (dict "root" $ "name" "operand") | quote' in files["templates/deployment-manager.yaml"]
    )
    assert f'main: "quay.io/acme/main@sha256:{"1" * 64}"' in files["values.yaml"].replace(
        "main: quay", 'main: "quay'
    ).replace("1\n", '1"\n')
    schema = json.loads(files["values.schema.json"])
    assert sorted(schema["properties"]["images"]["required"]) == ["main", "operand"]
    assert "operand" in files["templates/NOTES.txt"], "an image with a tag only is pointed out"


def test_an_image_in_a_flag_comes_through_the_mirror_too() -> None:
    image = "quay.io/acme/proxy@sha256:" + "4" * 64
    made = deployment(containers=[{"name": "main", "image": image, "args": [f"--proxy={image}", f"proxy={image}"]}])
    manager = chart(bundle(deployments=[made]))["templates/deployment-manager.yaml"]
    assert """- "--proxy={{ include "thing.image" (dict "root" $ "name" "main") }}"\n""" in manager
    assert f"- proxy={image}\n" in manager, "what is no flag may mean anything"


def test_a_selector_of_nodes_is_merged_into_nothing_that_others_read() -> None:
    manager = chart()["templates/deployment-manager.yaml"]
    assert r'{{ merge dict (.Values.nodeSelector | default dict) (fromJson "{\"os\":\"linux\"}") | toJson }}' in manager


def test_an_image_that_was_pinned_stands_in_values() -> None:
    pinned = {"quay.io/acme/operand:v1": "quay.io/acme/operand@sha256:" + "2" * 64}
    assert f"operand: quay.io/acme/operand@sha256:{'2' * 64}" in chart(images=pinned)["values.yaml"]


def test_every_account_gets_pull_secrets_and_keeps_its_own() -> None:
    files = chart()
    assert "imagePullSecrets: {{ .Values.imagePullSecrets | toJson }}" in files["templates/serviceaccount-manager.yaml"]
    own = files["templates/serviceaccount-extra.yaml"]
    assert r'(fromJsonArray "[{\"name\":\"own\"}]") (.Values.imagePullSecrets | default list) | toJson' in own


def test_braces_of_the_bundle_are_escaped() -> None:
    assert '{{ "{{" }} .Values.x }} }}' in chart()["templates/configmap-config.yaml"]


def test_nothing_that_a_bundle_says_is_evaluated() -> None:
    evil = '{{ fail "x" }}'
    found = bundle(
        spec={"displayName": evil, "relatedImages": [{"name": evil, "image": evil}]}, annotations={evil: evil}
    )
    templates = {path: text for path, text in chart(found).items() if path.startswith("templates/")}
    assert "templates/NOTES.txt" in templates
    assert not [path for path, text in templates.items() if "{{ fail" in text]


def test_a_pod_without_an_account_of_its_own_gets_the_secrets_itself() -> None:
    scheme = Scheme("c", {}, ())
    pod = {"spec": {"template": {"spec": {"containers": []}}}, "kind": "Deployment"}
    assert isinstance(templated(pod, scheme)["spec"]["template"]["spec"]["imagePullSecrets"], Template)
    assert "imagePullSecrets:" in write_document(templated(pod, scheme), helm=True)


def test_images_with_one_name_are_told_apart() -> None:
    related = [
        {"name": "x", "image": "a"},
        {"name": "x", "image": "b"},
        {"name": "y", "image": "a"},
        {"name": "", "image": "c"},
    ]
    assert images_of(bundle(deployments=[], spec={"relatedImages": related})) == {"image": "c", "x": "a", "x-2": "b"}


def test_images_in_annotations_of_the_pod_are_values_too() -> None:
    pinned = "quay.io/mesh/pilot@sha256:" + "3" * 64
    made = deployment()
    made["spec"]["template"]["metadata"]["annotations"] |= {"images.v1_27.istiod": pinned, "docs": "see quay.io/mesh"}
    found = bundle(deployments=[made])
    assert images_of(found)["v1_27-istiod"] == pinned
    assert (
        'images.v1_27.istiod: {{ include "thing.image" (dict "root" $ "name" "v1_27-istiod") | quote }}'
        in (chart(found)["templates/deployment-manager.yaml"])
    )


@pytest.mark.parametrize("name", ["Upper", "a b", "../x", "x" * 64, "-a"])
def test_a_name_that_no_chart_can_have(name: str) -> None:
    with pytest.raises(UserError, match="is no name for a chart"):
        chart(name=name)


def test_a_folder_is_written_again_without_what_is_gone_and_with_what_was_added(tmp_path: Path) -> None:
    folder = tmp_path / "chart"
    write_chart(chart(), acme(), folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_chart(chart(), acme(), folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "templates" / "mine.yaml").write_text("kind: ConfigMap")
    smaller = bundle()
    write_chart(chart(smaller), smaller, folder)
    assert (folder / "templates" / "mine.yaml").exists()
    assert not (folder / "crds" / "gadgets.example.com.yaml").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UserError, match="is not empty, and no chart of this command"):
        write_chart(chart(), acme(), tmp_path)
    (tmp_path / ".bundle.json").write_text('{"files": ["../escape"]}')
    with pytest.raises(UserError, match="names a file outside of the folder"):
        write_chart(chart(), acme(), tmp_path)


def test_the_name_of_cert_managers_operator_is_not_its_namespace() -> None:
    found = real_bundle("cert-manager-operator")
    if found is None:
        pytest.skip("NO REAL BUNDLE: set POINTSMAN_BUNDLES or POINTSMAN_DATA")
    text = chart(found)["templates/deployment-cert-manager-operator-controller-manager.yaml"]
    assert "name: OPERATOR_NAME\n          value: cert-manager-operator\n" in text
    assert f'namespace: "{RELEASE}"' in text

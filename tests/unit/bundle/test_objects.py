"""What a bundle becomes: each rule of OLMv1's renderer, on small bundles."""

from typing import Any

import pytest
from tests.unit.bundle.made import RULES, bundle, crd, deployment, webhook

from pointsman.bundle.model import Bundle, Refused
from pointsman.bundle.render.certificates import CertManager, Issued, OwnCertificates, ServiceCa
from pointsman.bundle.render.config import read_config
from pointsman.bundle.render.objects import InstallOptions, render
from pointsman.core.errors import UserError


def made(found: Bundle, kind: str, **options: Any) -> list[dict[str, Any]]:
    objects = render(found, InstallOptions(namespace="ns", **options))
    return [each for each in objects if each["kind"] == kind]


def test_permissions_are_lifted_when_every_namespace_is_watched() -> None:
    found = bundle(permissions=[{"serviceAccountName": "manager", "rules": RULES}])
    (role,) = made(found, "ClusterRole")
    assert role["rules"] == [
        *RULES,
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
    ]
    assert "namespace" not in role["metadata"]
    (binding,) = made(found, "ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "manager", "namespace": "ns"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert not made(found, "Role")


def test_permissions_become_a_role_in_each_watched_namespace() -> None:
    found = bundle(permissions=[{"serviceAccountName": "manager", "rules": RULES}])
    roles = made(found, "Role", targets=["a", "b"])
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    assert len({role["metadata"]["name"] for role in roles}) == 1
    assert all(role["rules"] == RULES for role in roles)
    subjects = [binding["subjects"][0]["namespace"] for binding in made(found, "RoleBinding", targets=["a", "b"])]
    assert subjects == ["ns", "ns"]


def test_accounts_are_made_once_in_the_install_namespace_and_default_never() -> None:
    found = bundle(
        permissions=[{"serviceAccountName": "b", "rules": RULES}, {"rules": RULES}],
        cluster_permissions=[{"serviceAccountName": "a", "rules": RULES}, {"serviceAccountName": "b", "rules": RULES}],
    )
    accounts = made(found, "ServiceAccount")
    assert [(each["metadata"]["name"], each["metadata"]["namespace"]) for each in accounts] == [
        ("a", "ns"),
        ("b", "ns"),
    ]
    assert {each["subjects"][0]["name"] for each in made(found, "ClusterRoleBinding")} == {"a", "b", "default"}


def test_a_deployment_carries_what_operators_read_through_the_downward_api() -> None:
    (found,) = made(bundle(), "Deployment", targets=["a", "b"])
    assert found["metadata"] == {"name": "manager", "namespace": "ns", "labels": {"app": "manager"}}
    assert found["spec"]["revisionHistoryLimit"] == 1
    assert found["spec"]["strategy"] == {}
    assert found["spec"]["template"]["metadata"]["annotations"] == {
        "capabilities": "own",
        "own": "kept",
        "olm.targetNamespaces": "a,b",
        "olm.operatorNamespace": "ns",
    }


@pytest.mark.parametrize(
    ("modes", "asked", "targets"),
    [
        pytest.param(["AllNamespaces", "OwnNamespace"], None, "", id="all by default"),
        pytest.param(["OwnNamespace"], None, "ns", id="own if it cannot watch all"),
        pytest.param(["OwnNamespace"], ["ns"], "ns", id="own"),
        pytest.param(["SingleNamespace"], ["x"], "x", id="single"),
        pytest.param(["MultiNamespace"], ["x", "z"], "x,z", id="many"),
        pytest.param(["MultiNamespace", "OwnNamespace"], ["ns", "z"], "ns,z", id="many with its own"),
    ],
)
def test_install_modes_decide_what_can_be_watched(modes: list[str], asked: list[str] | None, targets: str) -> None:
    (found,) = made(bundle(modes=modes), "Deployment", targets=asked)
    assert found["spec"]["template"]["metadata"]["annotations"]["olm.targetNamespaces"] == targets


@pytest.mark.parametrize(
    ("modes", "asked", "complaint"),
    [
        pytest.param(["MultiNamespace"], None, "the namespaces to watch must be named", id="many, none named"),
        pytest.param(["SingleNamespace"], None, "the one namespace to watch must be named", id="single, none named"),
        pytest.param(["SingleNamespace"], ["ns"], "that takes install mode OwnNamespace", id="not own"),
        pytest.param(["OwnNamespace"], [""], "cannot watch all namespaces", id="not all"),
        pytest.param(["OwnNamespace"], ["x"], "takes install mode SingleNamespace", id="not single"),
        pytest.param(["MultiNamespace"], ["ns", "z"], "takes install mode OwnNamespace", id="many without its own"),
        pytest.param(["MultiNamespace", "AllNamespaces"], ["", "z"], "AllNamespaces alone", id="all and some"),
        pytest.param([], None, "its install modes are none", id="no modes"),
    ],
)
def test_what_install_modes_do_not_allow_is_refused(modes: list[str], asked: list[str] | None, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint) as caught:
        made(bundle(modes=modes), "Deployment", targets=asked)
    assert [each.rule for each in caught.value.findings] == ["install-modes"]


def test_a_service_selects_the_pods_of_its_deployment() -> None:
    hooks = [
        webhook(name="a.example.com", containerPort=443, targetPort="hooks"),
        webhook(name="b.example.com"),
        webhook("MutatingAdmissionWebhook", name="c.example.com", containerPort=8443, targetPort=9443),
    ]
    found = bundle(
        deployments=[deployment("manager.v1"), deployment("other")],
        webhooks=[{**h, "deploymentName": "manager.v1"} for h in hooks],
    )
    (service,) = made(found, "Service")
    assert service["metadata"] == {"name": "manager-v1-service", "namespace": "ns"}
    assert service["spec"]["selector"] == {"control-plane": "manager.v1"}
    assert service["spec"]["ports"] == [
        {"name": "443", "port": 443, "targetPort": "hooks"},
        {"name": "443", "port": 443, "targetPort": 443},
        {"name": "8443", "port": 8443, "targetPort": 9443},
    ]


def test_a_webhook_sees_the_watched_namespaces_only() -> None:
    hook = webhook(
        name="check.example.com", objectSelector={}, timeoutSeconds=5, failurePolicy="Fail", webhookPath="/v"
    )
    found = bundle(webhooks=[hook])
    (watching_all,) = made(found, "ValidatingWebhookConfiguration")
    assert watching_all["metadata"]["name"] == "check.example.com"
    (inner,) = watching_all["webhooks"]
    assert inner == {
        "name": "check.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "manager-service", "namespace": "ns", "path": "/v", "port": 443}},
        "failurePolicy": "Fail",
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    (some,) = made(found, "ValidatingWebhookConfiguration", targets=["a", "b"])
    (expression,) = some["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}


def conversion(**fields: Any) -> Bundle:
    hook = webhook("ConversionWebhook", name="convert.example.com", conversionCRDs=["widgets.example.com"])
    return bundle(modes=["AllNamespaces"], webhooks=[hook], crds=[crd(**fields)])


def test_a_definition_is_told_where_its_conversion_is_and_loses_nothing() -> None:
    found = conversion()
    (definition,) = made(found, "CustomResourceDefinition")
    assert definition["spec"].pop("conversion") == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": {"name": "manager-service", "namespace": "ns", "path": "/", "port": 443}},
            "conversionReviewVersions": ["v1"],
        },
    }
    assert definition == crd()


def test_conversion_needs_fields_to_be_pruned() -> None:
    with pytest.raises(Refused, match="preserveUnknownFields"):
        made(conversion(preserveUnknownFields=True), "CustomResourceDefinition")


def test_cert_manager_issues_and_injects_also_for_conversion_alone() -> None:
    found = conversion()
    (definition,) = made(found, "CustomResourceDefinition", certificates=CertManager())
    assert definition["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "ns/manager-service-cert"}
    (issuer,) = made(found, "Issuer", certificates=CertManager())
    assert issuer["spec"] == {"selfSigned": {}}
    (certificate,) = made(found, "Certificate", certificates=CertManager())
    assert certificate["spec"] == {
        "commonName": "manager-service.ns",
        "dnsNames": ["manager-service.ns", "manager-service.ns.svc", "manager-service.ns.svc.cluster.local"],
        "duration": "17520h0m0s",
        "issuerRef": {"name": issuer["metadata"]["name"]},
        "renewBefore": "24h0m0s",
        "secretName": "manager-service-cert",
        "usages": ["server auth"],
    }


def test_an_issuer_that_is_named_is_used_and_none_is_made() -> None:
    provider = CertManager(issuer_name="company", issuer_kind="ClusterIssuer")
    assert not made(conversion(), "Issuer", certificates=provider)
    (certificate,) = made(conversion(), "Certificate", certificates=provider)
    assert certificate["spec"]["issuerRef"] == {"name": "company", "kind": "ClusterIssuer"}


def test_service_ca_is_asked_by_annotation() -> None:
    found = bundle(webhooks=[webhook()])
    (service,) = made(found, "Service", certificates=ServiceCa())
    assert service["metadata"]["annotations"] == {
        "service.beta.openshift.io/serving-cert-secret-name": "manager-service-cert"
    }
    (hook,) = made(found, "ValidatingWebhookConfiguration", certificates=ServiceCa())
    assert hook["metadata"]["annotations"] == {"service.beta.openshift.io/inject-cabundle": "true"}


def test_own_certificates_are_written_where_they_are_needed() -> None:
    provider = OwnCertificates(lambda serving: Issued("crt", "key", f"ca of {serving.hosts[1]}"))
    (definition,) = made(conversion(), "CustomResourceDefinition", certificates=provider)
    authority = "ca of manager-service.ns.svc"
    assert definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == authority
    (secret,) = made(conversion(), "Secret", certificates=provider)
    assert secret["data"] == {"ca.crt": authority, "tls.crt": "crt", "tls.key": "key"}
    (hook,) = made(bundle(webhooks=[webhook()]), "ValidatingWebhookConfiguration", certificates=provider)
    assert hook["webhooks"][0]["clientConfig"]["caBundle"] == authority


def test_certificates_are_mounted_where_operators_look_and_what_was_there_goes() -> None:
    container = {
        "name": "main",
        "image": "i",
        "volumeMounts": [
            {"name": "cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
            {"name": "data", "mountPath": "/data"},
            {"name": "apiservice-cert", "mountPath": "/elsewhere"},
        ],
    }
    volumes = [{"name": "cert", "secret": {"secretName": "old"}}, {"name": "data", "emptyDir": {}}]
    found = bundle(
        deployments=[deployment(containers=[container], volumes=volumes), deployment("other")], webhooks=[webhook()]
    )
    manager, other = made(found, "Deployment", certificates=CertManager())
    pod = manager["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["data", "webhook-cert", "apiservice-cert"]
    assert pod["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert pod["volumes"][1]["secret"]["secretName"] == "manager-service-cert"
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == [
        "data",
        "webhook-cert",
        "apiservice-cert",
    ]
    assert "volumes" not in other["spec"]["template"]["spec"]
    (without,) = (each for each in made(found, "Deployment") if each["metadata"]["name"] == "manager")
    assert without["spec"]["template"]["spec"]["volumes"] == volumes


def test_other_objects_come_into_the_namespace_if_their_kind_has_one() -> None:
    others: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "old"}, "data": {"a": ""}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 0},
    ]
    found = bundle(others=others)
    assert made(found, "ConfigMap") == [{**others[0], "metadata": {"name": "c", "namespace": "ns"}}]
    assert made(found, "PriorityClass") == [others[1]]


def test_deployment_config_changes_the_pods() -> None:
    config = read_config(
        {
            "env": [{"name": "A", "value": "new"}, {"name": "B", "value": "b"}],
            "envFrom": [{"prefix": "x"}],
            "volumes": [{"name": "data", "configMap": {"name": "c"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "tolerations": [{"key": "k"}],
            "resources": {"limits": {"cpu": "1"}},
            "nodeSelector": {"os": "linux"},
            "affinity": {"nodeAffinity": {}, "podAffinity": {"new": 1}},
            "annotations": {"own": "lost", "added": "yes"},
        },
        name="c",
    )
    container = {"name": "main", "image": "i", "env": [{"name": "A", "value": "old"}], "envFrom": [{"prefix": "x"}]}
    pod: dict[str, Any] = {
        "containers": [container],
        "initContainers": [{"name": "init", "image": "i"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
        "affinity": {"nodeAffinity": {"old": 1}, "podAntiAffinity": {"kept": 1}},
    }
    (found,) = made(bundle(deployments=[deployment(**pod)]), "Deployment", config=config)
    spec = found["spec"]["template"]["spec"]
    (changed,) = spec["containers"]
    assert changed["env"] == [{"name": "A", "value": "new"}, {"name": "B", "value": "b"}]
    assert changed["envFrom"] == [{"prefix": "x"}]
    assert changed["resources"] == {"limits": {"cpu": "1"}}
    assert changed["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert spec["volumes"] == [{"name": "data", "configMap": {"name": "c"}}]
    assert spec["tolerations"] == [{"key": "k"}]
    assert spec["nodeSelector"] == {"os": "linux"}
    assert spec["affinity"] == {"podAntiAffinity": {"kept": 1}, "podAffinity": {"new": 1}}
    assert spec["initContainers"] == pod["initContainers"]
    assert found["metadata"]["annotations"] == {"own": "lost", "added": "yes"}
    assert found["spec"]["template"]["metadata"]["annotations"]["own"] == "kept"
    assert found["spec"]["template"]["metadata"]["annotations"]["added"] == "yes"


def test_a_volume_that_is_mounted_twice_stays_so() -> None:
    mounts = [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}]
    pod: dict[str, Any] = {"containers": [{"name": "main", "image": "i", "volumeMounts": mounts}]}
    added = [{"name": "new", "mountPath": "/c"}, {"name": "new", "mountPath": "/d"}]
    config = read_config({"tolerations": [{"key": "k"}, {"key": "k"}], "volumeMounts": added}, name="c")
    (found,) = made(bundle(deployments=[deployment(**pod)]), "Deployment", config=config)
    spec = found["spec"]["template"]["spec"]
    assert spec["containers"][0]["volumeMounts"] == [*mounts, *added]
    assert spec["tolerations"] == [{"key": "k"}]


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_a_kind_of_affinity_that_is_null_is_left_alone() -> None:
    pod: dict[str, Any] = {"affinity": {"nodeAffinity": {"old": 1}, "podAffinity": {"old": 1}}}
    config = read_config({"env": None, "affinity": {"nodeAffinity": None, "podAffinity": {_REQUIRED: []}}}, name="c")
    (found,) = made(bundle(deployments=[deployment(**pod)]), "Deployment", config=config)
    assert found["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": {"old": 1}}


@pytest.mark.parametrize(
    "affinity",
    [{}, {"nodeAffinity": {}}, {"nodeAffinity": None}, {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": []}}}],
)
def test_an_empty_affinity_clears(affinity: dict[str, Any]) -> None:
    pod: dict[str, Any] = {"affinity": {"nodeAffinity": {"old": 1}}}
    config = read_config({"affinity": affinity}, name="c")
    (found,) = made(bundle(deployments=[deployment(**pod)]), "Deployment", config=config)
    assert "affinity" not in found["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"enw": []}, "unknown field `enw`"),
        ([], "Expected `object`, got `array`"),
        ({"volumes": [{"emptyDir": {}}]}, r"volumes\[0\] has no name"),
        ({"affinity": {"nodeAfinity": {}}}, "affinity.nodeAfinity is no kind of affinity"),
        ({"affinity": {"nodeAffinity": 1}}, "affinity.nodeAffinity must be a mapping"),
    ],
)
def test_a_config_that_could_only_be_guessed_at_is_refused(document: object, complaint: str) -> None:
    with pytest.raises(UserError, match=f"config.yaml: .*{complaint}"):
        read_config(document, name="config.yaml")


def test_nothing_that_is_rendered_changes_the_bundle() -> None:
    found = bundle(webhooks=[webhook()], crds=[crd()], permissions=[{"rules": RULES}])
    before = repr(found)
    render(found, InstallOptions(namespace="ns", certificates=CertManager()))
    assert repr(found) == before
    assert render(found, InstallOptions(namespace="ns")) == render(found, InstallOptions(namespace="ns"))

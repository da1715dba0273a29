"""The documentation's example operator as a real Pod: started, probed, logged and replaced by kubelet."""

import json
from typing import Any

import pytest
from tests.cluster.widgets import DEFINITION, source, widget
from tests.e2e.cluster import Cluster
from tests.waiting import wait_until

RBAC = "rbac.authorization.k8s.io"
LABELS = {"app": "widget-operator"}


def operator(namespace: str, image: str) -> list[dict[str, Any]]:
    """Return the operator's Deployment with its account and what that account may do."""
    name = {"name": "widget-operator", "namespace": namespace}
    rules = [
        {"apiGroups": ["example.dev"], "resources": ["widgets", "widgets/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps", "events"], "verbs": ["*"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["list", "watch"]},
    ]

    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1}

    container = {
        "name": "operator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/venv/bin/python", "/example/widget_operator.py"],
        "volumeMounts": [{"name": "example", "mountPath": "/example"}],
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/healthz"),
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": "widget-operator",
        "containers": [container],
        "volumes": [{"name": "example", "configMap": {"name": "widget-operator"}}],
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": {"widget_operator.py": source()}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": namespace}, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace},
            "subjects": [{"kind": "ServiceAccount", **name}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": name,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": pod},
            },
        },
    ]


@pytest.fixture
def operated(cluster: Cluster, namespace: str) -> str:
    cluster.apply(DEFINITION)
    cluster.kubectl("wait", "--for=condition=Established", "crd/widgets.example.dev", "--timeout=60s")
    cluster.apply(*operator(namespace, cluster.image))
    cluster.kubectl("rollout", "status", "deployment/widget-operator", "-n", namespace, "--timeout=120s")
    return namespace


def copies(cluster: Cluster, namespace: str) -> dict[str, str]:
    found = cluster.get("configmaps", "-n", namespace, "-l", "app.kubernetes.io/managed-by=widget-operator")["items"]
    return {one["metadata"]["name"]: one["data"]["text"] for one in found}


def pods(cluster: Cluster, namespace: str) -> list[str]:
    found = cluster.get("pods", "-n", namespace, "-l", "app=widget-operator")["items"]
    return [one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"]]


def test_the_operator_runs_as_a_pod(cluster: Cluster, operated: str) -> None:
    inside = ("-n", operated)
    cluster.apply(widget(operated, "w", copies=2, text="one"))
    cluster.kubectl("wait", "--for=condition=Ready", "widget/w", *inside, "--timeout=60s")
    assert copies(cluster, operated) == {"w-0": "one", "w-1": "one"}
    (pod,) = pods(cluster, operated)
    metrics = cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{operated}/pods/{pod}:8080/proxy/metrics")
    assert 'controller_runtime_reconcile_total{controller="widget",result="success"}' in metrics
    cluster.kubectl("delete", "pod", pod, *inside, "--timeout=20s")  # it ends when told, before its 30 s are over
    cluster.apply(widget(operated, "w", copies=1, text="two"))
    wait_until(lambda: copies(cluster, operated) == {"w-0": "two"})
    assert pods(cluster, operated) != [pod]
    cluster.kubectl("delete", "widget", "w", *inside, "--timeout=60s")
    wait_until(lambda: copies(cluster, operated) == {})


def test_a_conflict_is_told_by_an_event(cluster: Cluster, operated: str) -> None:
    inside = ("-n", operated)
    cluster.kubectl("create", "configmap", "x-0", "--from-literal=text=mine", *inside)
    cluster.apply(widget(operated, "x"))
    wait_until(lambda: "belongs to" in cluster.kubectl("get", "events", *inside, "-o", "jsonpath={.items[*].message}"))
    found = cluster.get("configmap", "x-0", *inside)
    assert found["data"] == {"text": "mine"}
    cluster.kubectl("delete", "widget", "x", *inside, "--timeout=60s")
    assert json.loads(cluster.kubectl("get", "widgets", *inside, "-o", "json"))["items"] == []

"""Small bundles for tests: a ClusterServiceVersion by its parts, written as files."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle

ALL_MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]


def deployment(name: str = "manager", **pod: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "quay.io/example/manager@sha256:" + "0" * 64}
    return {
        "name": name,
        "label": {"app": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"control-plane": name}},
            "strategy": {},
            "template": {
                "metadata": {"annotations": {"own": "kept", "capabilities": "own"}, "labels": {"control-plane": name}},
                "spec": {"containers": [container], "serviceAccountName": "manager", **pod},
            },
        },
    }


def webhook(
    type_: str = "ValidatingAdmissionWebhook", name: str = "check.example.com", **fields: Any
) -> dict[str, Any]:
    return {
        "type": type_,
        "generateName": name,
        "deploymentName": "manager",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }


def crd(name: str = "widgets.example.com", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "creationTimestamp": None},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"y": {"type": "string", "default": ""}}}
                    },
                }
            ],
            **spec,
        },
    }


def files(
    *,
    modes: Sequence[str] = ALL_MODES,
    deployments: Sequence[Mapping[str, Any]] | None = None,
    permissions: Sequence[Mapping[str, Any]] = (),
    cluster_permissions: Sequence[Mapping[str, Any]] = (),
    webhooks: Sequence[Mapping[str, Any]] = (),
    crds: Sequence[Mapping[str, Any]] = (),
    owned: Sequence[str] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
    package: str = "thing",
    name: str = "thing.v1.2.3",
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    names = [each["metadata"]["name"] for each in crds] if owned is None else owned
    csv = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": name, "annotations": dict(annotations or {"capabilities": "Basic Install"})},
        "spec": {
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": list(deployments if deployments is not None else [deployment()]),
                    "permissions": list(permissions),
                    "clusterPermissions": list(cluster_permissions),
                },
            },
            "installModes": [{"type": mode, "supported": mode in modes} for mode in ALL_MODES],
            "webhookdefinitions": list(webhooks),
            "customresourcedefinitions": {
                "owned": [{"name": each, "kind": "Widget", "version": "v1"} for each in names]
            },
            "version": "1.2.3",
            **(spec or {}),
        },
    }
    label = "operators.operatorframework.io.bundle"
    found: dict[str, Any] = {
        "manifests/csv.yaml": csv,
        "metadata/annotations.yaml": {
            "annotations": {f"{label}.package.v1": package, f"{label}.mediatype.v1": "registry+v1"}
        },
    }
    found |= {f"manifests/crd{at}.yaml": each for at, each in enumerate(crds)}
    found |= {f"manifests/other{at}.yaml": each for at, each in enumerate(others)}
    return {path: json.dumps(document).encode() for path, document in found.items()}


def bundle(**parts: Any) -> Bundle:
    return load_bundle(files(**parts), name="thing")

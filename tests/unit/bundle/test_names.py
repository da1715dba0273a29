"""Names, equal to those that OLM gives: the long ones below stand in the golden files of OLMv1's renderer."""

import hashlib
from typing import Any

import msgspec
import pytest

from pointsman.bundle.model import Permission
from pointsman.bundle.render.names import certificate_name, rights_hash, role_name, service_name, suffixed

ALL_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
GROUP = "webhook.operators.coreos.io"
CLUSTER: list[Any] = [
    ([GROUP], ["webhooktests"], ["create", "delete", "get", "list", "patch", "update", "watch"]),
    ([GROUP], ["webhooktests/finalizers"], ["update"]),
    ([GROUP], ["webhooktests/status"], ["get", "patch", "update"]),
    (["authentication.k8s.io"], ["tokenreviews"], ["create"]),
    (["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
]
LIFTED: list[Any] = [
    ([""], ["configmaps"], ALL_VERBS),
    (["coordination.k8s.io"], ["leases"], ALL_VERBS),
    ([""], ["events"], ["create", "patch"]),
    ([""], ["namespaces"], ["get", "list", "watch"]),
]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        pytest.param(CLUSTER, "webhook-operator.v-119edugfdvz48oyy2ctmbp4ec5c4a7zbv5k03vg4y3ve", id="cluster"),
        pytest.param(LIFTED, "webhook-operator.v-1zfvwth88plw3th2midra1jqduroo1q7omiagjujsiu3", id="lifted"),
    ],
)
def test_a_role_is_named_as_olm_names_it(rules: list[Any], name: str) -> None:
    permission = msgspec.convert(
        {
            "serviceAccountName": "webhook-operator-controller-manager",
            "rules": [{"apiGroups": g, "resources": r, "verbs": v} for g, r, v in rules],
        },
        Permission,
    )
    assert role_name("webhook-operator.v0.0.5", permission) == name


def test_html_characters_are_hashed_as_go_writes_them() -> None:
    plain = msgspec.convert({"rules": [{"nonResourceURLs": ["/a&b"], "verbs": ["get"]}]}, Permission)
    assert role_name("x", plain).startswith("x-default-")
    assert role_name("x", plain) != role_name("x", msgspec.structs.replace(plain, service_account_name="default"))


@pytest.mark.parametrize(
    ("permission", "text"),
    [
        ({}, '{"serviceAccountName":"","rules":null}'),
        ({"rules": []}, '{"serviceAccountName":"","rules":[]}'),
        ({"rules": [{}]}, '{"serviceAccountName":"","rules":[{"verbs":null}]}'),
        ({"rules": [{"verbs": [], "resources": []}]}, '{"serviceAccountName":"","rules":[{"verbs":[]}]}'),
    ],
)
def test_what_is_absent_is_hashed_as_null_and_what_is_empty_as_empty(permission: object, text: str) -> None:
    number = int.from_bytes(hashlib.sha224(f"{text}\n".encode()).digest())
    assert int(rights_hash(msgspec.convert(permission, Permission)), 36) == number


@pytest.mark.parametrize(("length", "expected"), [(10, 18), (55, 63), (56, 63), (57, 63), (200, 63)])
def test_the_name_of_a_service_always_fits(length: int, expected: int) -> None:
    name = service_name("d" * length)
    assert len(name) == expected
    assert name.endswith("-service")


def test_a_certificate_is_named_after_its_service() -> None:
    assert certificate_name("a.b") == "a-b-service-cert"


def test_a_sum_of_exactly_63_gives_64_characters_as_in_olm() -> None:
    assert len(suffixed("b" * 60, "abc")) == 64
    assert len(suffixed("b" * 61, "abc")) == 63

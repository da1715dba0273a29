"""The operator's rights are what its code uses and what it grants to pickers: no more, or least privilege is a word; no
less, or it fails on a cluster.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment
from pointsman.core.documents import read_yaml
from pointsman.kube import Kind
from pointsman.kube.kinds import CUSTOM_RESOURCE_DEFINITION, EVENT, LEASE
from pointsman.operator.kinds import GATEWAY_CLASS, MADE, POD
from pointsman.render.facts import Facts
from pointsman.render.stack import render

FILE = Path(__file__).parents[3] / "config" / "rbac" / "role.yaml"
Right = tuple[str, str, str]


def on(kind: Kind, verbs: str, *, part: str = "") -> set[Right]:
    return {(kind.group, kind.plural + part, verb) for verb in verbs.split()}


def of(rules: Iterable[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted() -> set[Right]:
    """Return what the picker of a stack gets at most."""
    head = {"apiVersion": "sim.llm-d.io/v1alpha1", "kind": "SimulatorDeployment", "metadata": {"name": "x"}}
    resource = SimulatorDeployment.model_validate({**head, "spec": {"epp": {"enabled": True, "replicas": 2}}})
    return of(rule for one in render(resource, Facts(inference_pool=True)) for rule in one.get("rules", ()))


def test_rights_are_exactly_what_is_used() -> None:
    used = {
        *on(SIMULATOR_DEPLOYMENT, "list watch"),
        *on(SIMULATOR_DEPLOYMENT, "patch", part="/status"),
        *on(SIMULATOR_DEPLOYMENT, "update", part="/finalizers"),
        *(right for kind in MADE for right in on(kind, "get list watch create patch delete")),
        *on(POD, "list watch"),
        *on(GATEWAY_CLASS, "list watch"),
        *on(CUSTOM_RESOURCE_DEFINITION, "list watch"),
        *on(EVENT, "create patch"),
        *on(LEASE, "get create update"),
    }
    assert of(read_yaml(FILE)["rules"]) == used | granted()


def test_pickers_get_something() -> None:
    assert ("", "pods", "watch") in granted()

"""The path of a probe: it must be one that the rule takes, and end at the model server as completions."""

from typing import Any

import pytest
from tests.unit.render.serving.services import ALL, MESH, MODEL, document, rendered

from pointsman.doctor.cluster.completions import asked_at, takes_completions
from pointsman.doctor.cluster.facts import Focus
from pointsman.doctor.cluster.objects import Objects
from pointsman.doctor.cluster.path import trace
from pointsman.doctor.gather.requests import target_of
from pointsman.render.envoy.addresses import Address

FULL = {"type": "ReplaceFullPath", "replaceFullPath": "/v1/completions"}


def rule(*paths: tuple[str, str], rewrite: Any = None) -> dict[str, Any]:
    written: dict[str, Any] = {"matches": [{"path": {"type": kind, "value": value}} for kind, value in paths]}
    if isinstance(rewrite, str):
        rewrite = {"type": "ReplacePrefixMatch", "replacePrefixMatch": rewrite}
    return written | ({"filters": [{"type": "URLRewrite", "urlRewrite": {"path": rewrite}}]} if rewrite else {})


@pytest.mark.parametrize(
    ("written", "path", "takes"),
    [
        pytest.param({}, "/v1/completions", True, id="no match is every path"),
        pytest.param(rule(("PathPrefix", "/v1/")), "/v1/completions", True, id="prefix"),
        pytest.param(rule(("Exact", "/v1/completions")), "/v1/completions", True, id="exact"),
        pytest.param(
            rule(("PathPrefix", "/n/m/v1/completions"), rewrite="/v1/completions"),
            "/n/m/v1/completions",
            True,
            id="as a service has it",
        ),
        pytest.param(rule(("PathPrefix", "/n/m"), rewrite="/"), "/n/m/v1/completions", True, id="prefix taken off"),
        pytest.param(rule(("PathPrefix", "/n/m"), rewrite="/v1"), "/n/m/completions", True, id="prefix replaced"),
        pytest.param(rule(("Exact", "/ask"), rewrite=FULL), "/ask", True, id="all replaced"),
        pytest.param(
            rule(("Exact", "/v1/models"), ("PathPrefix", "/v1/completions")), "/v1/completions", True, id="second match"
        ),
        pytest.param(rule(("PathPrefix", "/n/m")), "/n/m/v1/completions", False, id="nobody knows"),
        pytest.param(rule(("Exact", "/v1/models")), "/v1/models", False, id="for something else"),
        pytest.param(
            rule(("PathPrefix", "/n/v1/models"), rewrite="/v1/models"),
            "/n/v1/models/v1/completions",
            False,
            id="for something else, rewritten",
        ),
    ],
)
def test_the_path_of_a_probe(written: dict[str, Any], path: str, takes: bool) -> None:
    assert (asked_at(written), takes_completions(written)) == (path, takes)


def found(*documents: Any) -> Objects:
    kinds = {str(one["kind"]) for one in documents}
    return Objects(found={kind: tuple(one for one in documents if one["kind"] == kind) for kind in kinds})


@pytest.mark.parametrize("turned", [False, True], ids=["as rendered", "rules in another order"])
def test_a_service_is_asked_under_its_own_path(turned: bool) -> None:
    """The rule of each path rewrites exactly that path: a longer one would be a page that no model server has."""
    objects = [dict(one) for one in rendered(document(model=MODEL, router=ALL), MESH).objects]
    (route,) = (one for one in objects if one["kind"] == "HTTPRoute")
    if turned:
        route["spec"] = {**route["spec"], "rules": route["spec"]["rules"][::-1]}
    (parent,) = route["spec"]["parentRefs"]
    gateway = {"kind": "Gateway", "metadata": {"name": parent["name"], "namespace": parent["namespace"]}, "spec": {}}
    path = trace(found(*objects, gateway), Focus())
    assert target_of(path, Address("127.0.0.1", 80), model="m").path == "/models/phi3/v1/completions"

"""Who uses the definitions, what they cannot read, and how that looks at a glance."""

from typing import Any

import pytest
from tests.unit.crds.schemas import definition

from pointsman.api.inference import ALPHA_POOL, GROUP, LEGACY_GROUP, POOL
from pointsman.crds import Intent, Verdict, decide
from pointsman.crds.compatibility import TABLE, findings, reads
from pointsman.crds.consumers import Consumer, consumers
from pointsman.crds.marks import Holder
from pointsman.crds.table import StatusRow, render

V1, ALPHA = str(POOL), str(ALPHA_POOL)


def deployment(image: str, *args: str, name: str = "one") -> dict[str, Any]:
    pod = {"containers": [{"image": image, "args": list(args)}]}
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"template": {"spec": pod}}}


def route(*groups: str | None) -> dict[str, Any]:
    references = [{"name": "pool", **({"group": group} if group is not None else {})} for group in groups]
    return {"metadata": {"namespace": "ns", "name": "route"}, "spec": {"rules": [{"backendRefs": references}]}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            deployment("docker.io/istio/pilot:1.27.3"), Consumer("controller", "Istio", "ns/one", "1.27.3"), id="istio"
        ),
        pytest.param(
            deployment("registry:5000/istio/pilot:1.28.0@sha256:00"),
            Consumer("controller", "Istio", "ns/one", "1.28.0"),
            id="registry-with-port-and-digest",
        ),
        pytest.param(
            deployment("ghcr.io/llm-d/llm-d-router:v0.10.0", "--pool-name=p"),
            Consumer("picker", "llm-d picker", "ns/one", "v0.10.0", frozenset({V1})),
            id="picker",
        ),
        pytest.param(
            deployment("own/epp", "--pool-name", "p", "--pool-group", LEGACY_GROUP),
            Consumer("picker", "GIE picker", "ns/one", "", frozenset({ALPHA})),
            id="picker-of-the-old-group",
        ),
        pytest.param(
            deployment("somebody/thing:1", "--poolName=p"),
            Consumer("picker", "a picker", "ns/one", "1", frozenset({V1})),
            id="picker-by-its-flag",
        ),
    ],
)
def test_deployments(document: dict[str, Any], expected: Consumer) -> None:
    assert consumers([document], []) == [expected]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(deployment("nginx:1"), id="another"),
        pytest.param(deployment("ghcr.io/llm-d/pointsman:1", "operator"), id="our-operator"),
        pytest.param({}, id="empty"),
        pytest.param({"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [3]}}}}, id="strange"),
    ],
)
def test_who_is_no_consumer(document: dict[str, Any]) -> None:
    assert consumers([document], []) == []


def test_routes_by_their_references() -> None:
    assert consumers([], [route(None, "")]) == []
    (found,) = consumers([], [route(None, GROUP, LEGACY_GROUP)])
    assert (found.role, found.where, set(found.uses)) == ("route", "ns/route", {V1, ALPHA})
    assert consumers([], [{"metadata": {"name": "x"}, "spec": {"rules": [{"backendRefs": None}]}}]) == []


@pytest.mark.parametrize(
    ("version", "versions"),
    [
        ("1.26.1", ()),
        ("1.27.0", (f"{LEGACY_GROUP}/v1alpha2",)),
        ("1.28.3-distroless", (f"{GROUP}/v1",)),
        ("1.31.0", (f"{GROUP}/v1",)),
        ("latest", None),
        ("", None),
    ],
)
def test_istio(version: str, versions: tuple[str, ...] | None) -> None:
    assert reads("Istio", version) == versions


def test_incompatibility_is_one_sentence() -> None:
    istio = Consumer("controller", "Istio", "istio-system/istiod", "1.27.3")
    (found,) = findings([istio], objects={V1: 2, ALPHA: 0})
    assert found.says == (
        f"Istio 1.27.3 reads only {LEGACY_GROUP}/v1alpha2: InferencePool {GROUP}/v1 objects will be ignored "
        "(2 there now)"
    )
    assert findings([istio], objects={ALPHA: 1}) == []
    assert findings([Consumer("controller", "Istio", "a/b", "1.28.0")], objects={V1: 1}) == []
    assert findings([Consumer("controller", "Istio", "a/b", "devel")], objects={V1: 1}) == []


def test_picker_is_asked_only_about_the_pool_that_it_follows() -> None:
    picker = Consumer("picker", "llm-d picker", "a/b", "v0.10.0", frozenset({V1}))
    assert findings([picker], objects={V1: 1, ALPHA: 1}) == []
    old = Consumer("picker", "llm-d picker", "a/b", "v0.10.0", frozenset({ALPHA}))
    assert len(findings([old], objects={V1: 1, ALPHA: 1})) == 1


def test_table_has_every_consumer_from_its_first_version() -> None:
    assert {"Istio", "GIE picker", "llm-d picker", "KServe", "Pointsman"} == {row.consumer for row in TABLE}


def test_glance() -> None:
    kept = Verdict("a.example.dev", "nothing", "is as it should be", holder=Holder(ours=True, name="pointsman"))
    foreign = Verdict("long-name.example.dev", "leave", "belongs to OLM", holder=Holder(ours=False, name="OLM"))
    missing = decide(definition(), None, intent=Intent())
    rows = [
        StatusRow(kept, release="v1.5.0", stored=["v1"], objects=3),
        StatusRow(foreign, release="v1.2.0", stored=["v1", "v1alpha2"], objects=0, established=False),
        StatusRow(missing),
    ]
    istio = Consumer("controller", "Istio", "istio-system/istiod", "1.27.3")
    text = render(rows, findings([istio], objects={V1: 3}))
    assert text.splitlines()[:4] == [
        "DEFINITION             OWNER      VERSION  STORED       OBJECTS  VERDICT",
        "a.example.dev          pointsman  v1.5.0   v1           3        ok",
        "long-name.example.dev  OLM        v1.2.0   v1,v1alpha2  0        foreign, not served yet",
        "things.example.dev     –          –        –            –        missing",
    ]
    assert "long-name.example.dev: belongs to OLM" in text
    assert "warning: Istio 1.27.3 reads only" in text

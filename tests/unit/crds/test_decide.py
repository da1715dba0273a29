"""What is done about a definition: never to another's, never back, never breaking unless told so."""

from typing import Any

import pytest
from tests.unit.crds.schemas import definition, version

from pointsman.crds import Definition, Intent, Verdict, decide
from pointsman.crds.marks import STAMP, holder, installer, rival, stamped
from pointsman.crds.migration import Progress, bridge, progress, stale_versions
from pointsman.crds.previous import MIGRATION, PREVIOUS, pack, unpack

NAME = "things.example.dev"
SMALLER = {"type": "object", "properties": {}}


def live(one: Definition, *, owner: str = "pointsman", **metadata: Any) -> dict[str, Any]:
    """Return a definition as the cluster has it."""
    document = stamped(one.document, owner=owner) if owner else one.document
    annotations = {**document["metadata"].get("annotations", {}), **metadata.pop("annotations", {})}
    stored = [version["name"] for version in one.spec["versions"]]
    head = {**document["metadata"], "uid": "1", "annotations": annotations, **metadata}
    return {**document, "metadata": head, "status": {"storedVersions": stored}}


def done(wanted: Definition, there: dict[str, Any] | None, **intent: Any) -> Verdict:
    return decide(wanted, there, intent=Intent(**intent))


def test_absent_is_created_with_our_stamp() -> None:
    decision = done(definition(release="v1.5.0"), None)
    assert decision.action == "create"
    assert decision.document["metadata"]["annotations"][STAMP] == "pointsman"
    assert holder(decision.document).ours


def test_terminating_is_waited_for_and_says_what_holds_it() -> None:
    there = live(definition(), deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.dev/hold"])
    decision = done(definition(), there)
    assert decision.action == "wait"
    assert "example.dev/hold" in decision.why


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        pytest.param({"labels": {"olm.managed": "true"}}, "OLM", id="olm"),
        pytest.param({"labels": {"operators.coreos.com/kserve.kserve": ""}}, "OLM (kserve.kserve)", id="olm-operator"),
        pytest.param(
            {"annotations": {"meta.helm.sh/release-name": "gie", "meta.helm.sh/release-namespace": "infra"}},
            "Helm release infra/gie",
            id="helm",
        ),
        pytest.param(
            {"labels": {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "gie-1"}}, "Helm (gie-1)", id="chart"
        ),
        pytest.param({"labels": {"app.kubernetes.io/managed-by": "sail-library"}}, "the sail operator", id="sail"),
        pytest.param(
            {"labels": {"ingress.operator.openshift.io/owned": "true"}},
            "the OpenShift ingress operator",
            id="openshift",
        ),
        pytest.param({"labels": {"app.kubernetes.io/part-of": "kserve"}}, "KServe", id="kserve"),
        pytest.param({"labels": {"platform.opendatahub.io/part-of": "kserve"}}, "Open Data Hub", id="odh"),
        pytest.param({"annotations": {"argocd.argoproj.io/tracking-id": "infra:x"}}, "Argo CD (infra)", id="argo"),
        pytest.param({"labels": {"kustomize.toolkit.fluxcd.io/name": "infra"}}, "Flux (infra)", id="flux"),
        pytest.param(
            {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "kubectl apply", id="kubectl"
        ),
        pytest.param({"managedFields": [{"manager": "kubectl", "operation": "Apply"}]}, "kubectl", id="kubectl-ssa"),
        pytest.param({}, "nobody known", id="nobody"),
        pytest.param({"annotations": {STAMP: "team-b"}}, "pointsman as team-b", id="another-of-us"),
    ],
)
def test_foreign_is_left_alone_and_named(metadata: dict[str, Any], name: str) -> None:
    there = live(definition(release="v1.2.0"), owner="", **metadata)
    decision = done(definition(release="v1.5.0"), there)
    assert (decision.action, decision.document) == ("leave", {})
    assert decision.holder is not None and decision.holder.name == name
    assert f"belongs to {name}" in decision.why and f"adopt {NAME}" in decision.why


def test_adoption_takes_only_what_is_named() -> None:
    there = live(definition(release="v1.2.0"), owner="", labels={"olm.managed": "true"})
    assert done(definition(release="v1.5.0"), there, adopt=frozenset({"others.example.dev"})).action == "leave"
    decision = done(definition(release="v1.5.0"), there, adopt=frozenset({NAME}))
    assert decision.action == "update"
    assert holder(decision.document).ours


def test_adoption_is_not_allowed_to_break_either() -> None:
    there = live(definition(release="v1.2.0"), owner="")
    smaller = definition(version(spec=SMALLER), release="v1.5.0")
    adopt = frozenset({NAME})
    assert done(smaller, there, adopt=adopt).action == "blocked"
    assert done(smaller, there, adopt=adopt, accept_breaking=True).action == "update"
    assert done(definition(release="v1.1.0"), there, adopt=adopt, accept_breaking=True).action == "blocked"


def test_other_marks_beside_ours_are_told() -> None:
    there = live(definition(), annotations={"meta.helm.sh/release-name": "gie"})
    assert installer(there) == "Helm release default/gie"
    assert holder(there).name == "pointsman, beside Helm release default/gie"
    assert holder(there).ours


def test_rival_is_who_writes_the_schema_beside_us() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:versions": {}}}
    there = live(
        definition(),
        managedFields=[
            {"manager": "pointsman-crds", "operation": "Apply", "fieldsV1": fields},
            {"manager": "helm", "operation": "Update", "fieldsV1": fields},
            {"manager": "kube-apiserver", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ],
    )
    assert rival(there) == "helm"


@pytest.mark.parametrize(
    ("there", "wanted", "action"),
    [
        pytest.param("v1.5.0", "v1.4.0", "blocked", id="older"),
        pytest.param("v1.5.0", "v1.5.0-rc.2", "blocked", id="candidate-of-what-is-there"),
        pytest.param("v1.5.0-rc.2", "v1.5.0-rc.10", "update", id="later-candidate"),
        pytest.param("v1.5.0-rc.2", "v1.5.0", "update", id="candidate-becomes-release"),
        pytest.param("v1.9.0", "v1.10.0", "update", id="numbers-not-letters"),
        pytest.param("v1.5.0", "v1.5.0", "restore", id="same-release-other-content"),
        pytest.param("main-dev", "v1.5.0", "update", id="no-version"),
    ],
)
def test_no_way_back(there: str, wanted: str, action: str) -> None:
    assert done(definition(release=wanted), live(definition(release=there))).action == action


def test_rollback_may_go_back() -> None:
    there = live(definition(release="v1.5.0"))
    assert done(definition(release="v1.4.0"), there, back=True).action == "update"


def test_breaking_needs_to_be_accepted_and_is_listed() -> None:
    there, wanted = live(definition(release="v1.4.0")), definition(version(spec=SMALLER), release="v1.5.0")
    decision = done(wanted, there)
    assert (decision.action, decision.document) == ("blocked", {})
    assert [change.path for change in decision.breaking] == ["v1: spec.a"]
    assert "1 breaking change against v1.4.0" in decision.why and "--accept-breaking" in decision.why
    assert done(wanted, there, accept_breaking=True).action == "update"


def test_drift_is_put_right_even_where_that_narrows() -> None:
    loosened = live(definition(release="v1.5.0"))
    decision = done(definition(version(spec=SMALLER), release="v1.5.0"), loosened)
    assert decision.action == "restore"
    assert decision.breaking


def test_update_keeps_what_was_there() -> None:
    there = live(definition(release="v1.4.0"))
    document = done(definition(release="v1.5.0"), there).document
    before = unpack(Definition(document))
    assert before is not None
    assert (before.release, before.spec) == ("v1.4.0", there["spec"])
    assert STAMP not in before.annotations


def test_what_is_kept_survives_the_next_look() -> None:
    """Drift of an upgraded definition must not overwrite what a rollback needs."""
    there = live(definition(release="v1.5.0"), annotations={PREVIOUS: pack(definition(release="v1.4.0"))})
    document = done(definition(release="v1.5.0"), there).document
    assert document["metadata"]["annotations"][PREVIOUS] == there["metadata"]["annotations"][PREVIOUS]


def test_too_large_to_keep_is_said() -> None:
    from random import Random

    rng = Random(1)
    words = {f"f{number}": {"type": "string", "pattern": rng.randbytes(40).hex()} for number in range(5000)}
    there = live(definition(version(spec={"type": "object", "properties": words}), release="v1.4.0"))
    wanted = definition(version(spec={"type": "object", "properties": words}), release="v1.5.0")
    decision = done(wanted, there)
    assert "too large to be kept" in decision.why
    assert PREVIOUS not in decision.document["metadata"]["annotations"]


@pytest.mark.parametrize("text", ["", "no base64 !", "aGFsbG8=", "eJwDAAAAAAE="])
def test_damaged_previous_is_none(text: str) -> None:
    assert unpack(Definition(live(definition(), annotations={PREVIOUS: text}))) is None


def test_bomb_in_the_annotation_is_not_unpacked() -> None:
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(b" " * (64 << 20))).decode()
    assert unpack(Definition(live(definition(), annotations={PREVIOUS: bomb}))) is None


def test_stored_version_that_goes_is_migrated_first() -> None:
    old = definition(version("v1alpha1"), release="v1.4.0")
    new = definition(version("v1"), release="v1.5.0")
    there = live(old)
    decision = done(new, there, accept_breaking=True)
    assert (decision.action, decision.migrate) == ("update", ("v1alpha1",))
    between = bridge(Definition(there), new)
    assert {name: one["storage"] for name, one in between.versions.items()} == {"v1": True, "v1alpha1": False}
    assert all(one["served"] for one in between.versions.values())
    assert stale_versions(Definition(there), definition(version("v1"), version("v1alpha1", storage=False))) == ()


def test_progress_is_of_one_target() -> None:
    kept = Progress(to="v1", done=400, after=("b", "x"))
    there = Definition(live(definition(), annotations={MIGRATION: kept.text()}))
    assert progress(there, to="v1") == kept
    assert progress(there, to="v2") == Progress(to="v2")
    assert progress(Definition(live(definition(), annotations={MIGRATION: "?"})), to="v1") == Progress(to="v1")

"""What an administrator allows: a resource that goes beyond is told by field, value, limit and flag."""

from typing import Any

import pytest
from tests.unit.render.stacks import BARE, CASES, GATEWAY_API, ISTIO, MESH, ON, SAMPLES, STAGES, Case, find, resource

from pointsman.api import read
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Breach, Policy, breaches, is_from
from pointsman.render.manifests.stack import stack

samples = pytest.mark.parametrize(
    "path", sorted(SAMPLES.glob("sim_*_simulatordeployment_*.yaml")), ids=lambda path: path.stem[28:]
)
STRICT = Policy(allowed_images=("registry.example/",))


def found(policy: Policy = Policy(), facts: Facts = BARE, /, **spec: Any) -> list[tuple[str, str, str]]:  # noqa: B008 - frozen
    return [(one.field, one.value, one.flag) for one in breaches(resource(**spec), facts, policy)]


@samples
@pytest.mark.parametrize("facts", [BARE, MESH], ids=["bare", "mesh"])
def test_the_samples_are_allowed_by_default(path: Any, facts: Facts) -> None:
    assert stack(read(path), facts).breaches == ()


MANY = 1_000_000


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"replicas": MANY}, "spec.replicas", id="simulators"),
        pytest.param({"epp": ON | {"replicas": MANY}}, "spec.epp.replicas", id="pickers"),
        pytest.param({"prefill": ON | {"replicas": MANY}}, "spec.prefill.replicas", id="prefill"),
        pytest.param({"decode": ON | {"replicas": MANY}}, "spec.decode.replicas", id="decode"),
        *(
            pytest.param(
                {"inferenceGateway": ON | {kind: ON | {"replicas": MANY}}},
                f"spec.inferenceGateway.{kind}.replicas",
                id=f"{kind} gateways",
            )
            for kind in ("standard", "istio")
        ),
    ],
)
def test_too_many_pods(spec: dict[str, Any], field: str) -> None:
    assert found(**spec) == [(field, "1000000", "--max-replicas")]
    assert found(Policy(max_replicas=MANY), **spec) == []


@pytest.mark.parametrize("count", [0, 100])
def test_up_to_the_limit_is_allowed(count: int) -> None:
    assert found(replicas=count) == []


def test_what_is_not_enabled_asks_for_nothing() -> None:
    off = {"replicas": MANY, "image": "evil.example/x:1"}
    assert found(epp=off, prefill=off, decode=off, inferenceGateway=ON | {"standard": off}) == []
    assert found(replicas=MANY, **STAGES) == []  # with stages there are no others


@pytest.mark.parametrize(
    "image",
    [
        "evil.example/picker:1",
        "ghcr.io/llm-d/llm-d-inference-scheduler-of-mine:1",
        "evil.example/ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
        "ghcr.io/llm-d/llm-d-inference-schedule",
        "pointsman-of-mine:local",
        "someone/pointsman:local",
        "docker.io.evil.example/library/pointsman:local",
        "DOCKER.IO/library/pointsman:1",
    ],
)
def test_a_picker_of_an_image_that_nobody_trusts(image: str) -> None:
    assert found(epp=ON | {"image": image}) == [("spec.epp.image", image, "--trusted-image-prefixes")]
    (only,) = breaches(resource(epp=ON | {"image": image}), BARE, Policy())
    assert "ghcr.io/llm-d/llm-d-inference-scheduler, docker.io/library/pointsman" in only.limit


@pytest.mark.parametrize(
    "image",
    [
        "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0",
        f"ghcr.io/llm-d/llm-d-inference-scheduler@sha256:{'0' * 64}",
        "ghcr.io/llm-d/llm-d-inference-scheduler/debug:1",
        "docker.io/library/pointsman:local",
        "library/pointsman:local",
        "pointsman:local",
        "pointsman",
    ],
)
def test_a_picker_of_an_image_that_is_trusted(image: str) -> None:
    assert found(epp=ON | {"image": image}) == []


@pytest.mark.parametrize(
    ("image", "prefix", "expected"),
    [
        ("registry.example/a/b:1", "registry.example/", True),
        ("registry.example:5000/a:1", "registry.example/", False),
        ("registry.example/a/b:1", "registry.example/a", True),
        ("registry.example/ab:1", "registry.example/a", False),
        ("registry.example.evil/a:1", "registry.example", False),
        ("registry.example/a:1", "registry.example/a:1", True),
        ("registry.example/a:12", "registry.example/a:1", False),
        ("localhost/a:1", "localhost/", True),
        ("a/b:1", "docker.io/a/", True),
    ],
)
def test_what_an_image_is_from(image: str, prefix: str, expected: bool) -> None:
    assert is_from(image, prefix) is expected


def test_no_image_at_all_is_trusted() -> None:
    ((field, _, flag),) = found(Policy(trusted_images=()), epp=ON)
    assert (field, flag) == ("spec.epp.image", "--trusted-image-prefixes")


def test_other_images_are_free_unless_the_administrator_says_otherwise() -> None:
    own = {"image": "evil.example/x:1"}
    spec = {**own, "prefill": ON, "decode": ON | own, "inferenceGateway": ON | {"standard": ON | own, "istio": ON}}
    assert found(**spec) == []
    flag = "--allowed-image-prefixes"
    assert found(STRICT, **spec) == [
        ("spec.image", "evil.example/x:1", flag),  # prefill has none of its own
        ("spec.decode.image", "evil.example/x:1", flag),
        ("spec.inferenceGateway.standard.image", "evil.example/x:1", flag),
    ]
    assert found(STRICT, image="registry.example/sim:1", epp=ON) == []


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_nothing_is_reached_from_outside_the_cluster(kind: str) -> None:
    assert found(service={"type": kind}) == [("spec.service.type", kind, "--allow-external-services")]
    assert found(Policy(external_services=True), service={"type": kind}) == []


def test_a_gateway_of_a_class_that_makes_what_it_likes() -> None:
    own = {"gateway": ON | {"className": "nginx"}}
    assert found(Policy(), GATEWAY_API, **own) == [
        ("spec.gateway.className", "nginx", "--allow-external-services"),
    ]
    assert found(Policy(), BARE, **own) == []  # and none is made without the Gateway API
    assert found(Policy(external_services=True), GATEWAY_API, **own) == []


def test_istio_is_told_to_keep_the_old_gateway_inside() -> None:
    for outside, expected in ((False, {"networking.istio.io/service-type": "ClusterIP"}), (True, None)):
        made = stack(resource(gateway=ON), ISTIO, Policy(external_services=outside)).objects
        assert find(made, "Gateway")["metadata"].get("annotations") == expected


def test_a_breach_names_field_value_limit_and_flag() -> None:
    told = Breach(field="spec.replicas", value="7", limit="at most 5", flag="--max-replicas").message
    assert told == (
        "spec.replicas is 7, and the operator allows at most 5: change it, or have the operator's administrator "
        "change --max-replicas"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_policy_changes_no_more_than_it_says(case: Case) -> None:
    plain = stack(case.resource, case.facts)
    lax = Policy(max_replicas=MANY, trusted_images=("registry.example/", "ghcr.io/"), allowed_images=())
    assert stack(case.resource, case.facts, lax).objects == plain.objects

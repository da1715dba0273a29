"""Files on a laptop: what the API server would refuse is refused here, and every mistake says what to do."""

from pathlib import Path
from typing import Any

import pytest

from pointsman.api import SimulatorDeployment, parse, parse_any, read
from pointsman.core.errors import UserError

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "config" / "samples").glob("sim_*_simulatordeployment_*.yaml"))


def document(name: str = "stack", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sim.llm-d.io/v1alpha1",
        "kind": "SimulatorDeployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def mistakes(raw: Any) -> str:
    with pytest.raises(UserError) as caught:
        parse(raw, source="stack.yaml")
    return str(caught.value)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    kind = path.stem.removeprefix("sim_v1alpha1_simulatordeployment_")
    resource = read(path)
    assert (resource.metadata.name, resource.metadata.namespace) == (f"llm-sim-{kind.replace('_', '-')}", "llm-d-sim")


def test_there_are_samples() -> None:
    assert len(SAMPLES) == 4


def test_nothing_said_is_the_default() -> None:
    bare = {"apiVersion": "sim.llm-d.io/v1alpha1", "kind": "SimulatorDeployment", "metadata": {"name": "a"}}
    resource = parse(bare, source="it")
    assert (resource.spec.replicas, resource.metadata.namespace, resource.spec.epp) == (2, "default", None)


def test_null_is_left_out() -> None:
    raw = document(loadBalancing=None, replicas=None, epp={"port": None, "resources": None, "args": None})
    spec = parse(raw, source="it").spec
    assert (spec.load_balancing, spec.replicas) == (None, 2)
    assert spec.epp is not None
    assert (spec.epp.port, spec.epp.args) == (8100, ())


def test_quantities_may_be_numbers() -> None:
    spec = parse(document(resources={"limits": {"cpu": 2, "memory": "1Gi"}}), source="it").spec
    assert spec.resources is not None
    assert spec.resources.limits == {"cpu": "2", "memory": "1Gi"}


RESERVED = "service.name is the name of another Service of the stack: choose another, or leave it out"
TOO_MUCH = "requests ask for more than limits allow: lower the request or raise the limit of the same name"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            document(replicsa=3), "spec.replicsa: unknown field: did you mean 'replicas'?", id="unknown field"
        ),
        pytest.param(
            document(decode={"replica": 3}),
            "spec.decode.replica: unknown field: did you mean 'replicas'?",
            id="unknown field in a block",
        ),
        pytest.param(
            document(replicas=-1), "spec.replicas: input should be greater than or equal to 0, not -1", id="negative"
        ),
        pytest.param(
            document(replicas="2"), "spec.replicas: input should be a valid integer, not '2'", id="text for a number"
        ),
        pytest.param(
            document(epp={"enabled": "yes"}),
            "spec.epp.enabled: input should be a valid boolean, not 'yes'",
            id="text for a switch",
        ),
        pytest.param(
            document(service={"port": 65536}),
            "spec.service.port: input should be less than or equal to 65535, not 65536",
            id="port",
        ),
        pytest.param(
            document(loadBalancing={"algorithm": "LEAST"}),
            "spec.loadBalancing.algorithm: input should be 'ROUND_ROBIN', 'LEAST_REQUEST', 'RANDOM' or 'LEAST_CONN',"
            " not 'LEAST'",
            id="enum",
        ),
        pytest.param(
            document(resources={"limits": {"cpu": 0.5}}),
            "spec.resources.limits.cpu: is a whole number or a string: write '0.5' with its quotes",
            id="quantity with a fraction",
        ),
        pytest.param(
            document(resources={"requests": {"cpu": "1e99999999"}, "limits": {"cpu": "1"}}),
            "spec.resources.requests.cpu: '1e99999999' is not a quantity such as 500m, 1Gi or 1e3",
            id="quantity that nobody can write out",
        ),
        pytest.param(
            document(prefill={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}),
            f"spec.prefill.resources: {TOO_MUCH}",
            id="requests above limits",
        ),
        pytest.param(
            document(epp={"port": 9003}),
            "spec.epp: port is a port that the picker's Service has already (9003, 9090): choose another, such as 8100",
            id="the picker's own port",
        ),
        pytest.param(document(service={"name": "gaie-sim-epp"}), f"spec: {RESERVED}", id="the picker's Service"),
        pytest.param(
            document(service={"name": "ms-sim-llm-d-modelservice-decode-b"}, nameSuffix="-b"),
            f"spec: {RESERVED}",
            id="a stage's Service, with the suffix",
        ),
        pytest.param(
            document("a" * 41),
            "metadata.name has more than 40 characters, and longer names are made from it: choose a shorter one",
            id="name",
        ),
        pytest.param(
            document() | {"kind": "Deployment"},
            "kind: input should be 'SimulatorDeployment', not 'Deployment'",
            id="another kind",
        ),
    ],
)
def test_one_mistake_is_one_sentence(raw: dict[str, Any], expected: str) -> None:
    assert mistakes(raw) == f"stack.yaml: {expected}"


def test_of_another_kind_only_the_kind_is_told() -> None:
    install = {"apiVersion": "sim.llm-d.io/v1alpha1", "kind": "SchedulerInstall", "spec": {"routing": {}, "x": 1}}
    assert mistakes(install) == "stack.yaml: kind: input should be 'SimulatorDeployment', not 'SchedulerInstall'"
    with pytest.raises(UserError, match=r"^it: kind: .* 'SimulatorDeployment' or 'LLMInferenceService', not 'Pod'$"):
        parse_any({"apiVersion": "v1", "kind": "Pod", "spec": {}}, source="it")


def test_all_mistakes_at_once() -> None:
    said = mistakes(document(replicas=-1, epp={"port": 0}, nonsense=1))
    assert said.startswith("stack.yaml: 3 mistakes:\n")
    assert all(path in said for path in ("spec.replicas: ", "spec.epp.port: ", "spec.nonsense: "))


@pytest.mark.parametrize("raw", [None, "text", [1]], ids=["nothing", "text", "list"])
def test_what_is_no_resource(raw: Any) -> None:
    assert mistakes(raw).startswith("stack.yaml: not a SimulatorDeployment: ")


def test_suffix_makes_a_name_free() -> None:
    resource = parse(document(service={"name": "gaie-sim-epp"}, nameSuffix="-b"), source="it")
    assert isinstance(resource, SimulatorDeployment)

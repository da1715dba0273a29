from dataclasses import replace

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.server import identity, load_step_model
from pointsman.sim.settings import Settings, check


@pytest.mark.parametrize(
    ("pods", "environ", "shown"),
    [
        pytest.param(1, {}, ["sim-8200"], id="unnamed"),
        pytest.param(1, {"POD_NAME": "a"}, ["a"], id="one"),
        pytest.param(2, {"POD_NAME": "a,b"}, ["a", "b"], id="a name each"),
        pytest.param(2, {"POD_NAME": "a"}, ["sim-8200", "sim-8201"], id="one name is not enough for two"),
        pytest.param(2, {"POD_NAME": "a,"}, ["a", "sim-8201"], id="empty name"),
    ],
)
def test_no_two_pods_answer_under_the_same_name(pods: int, environ: dict[str, str], shown: list[str]) -> None:
    settings = replace(Settings(), pods=pods)
    names = [identity(settings, pod=n, port=8200 + n, environ=environ)["x-inference-pod"] for n in range(pods)]
    assert names == shown


@pytest.mark.parametrize("name", ["h200-llama-3.1-8b", "rtxpro6000-llama-3.1-8b"])
def test_a_shipped_model_runs_by_its_name(name: str) -> None:
    model = load_step_model(check(Settings(model="m", latency_model=name)))
    assert model is not None and 0.001 < model.weights < 0.1


def test_a_model_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"a100 is no file and not shipped: choose from h200-llama-3\.1-8b, rtxpro6000"):
        load_step_model(Settings(model="m", latency_model="a100"))
    with pytest.raises(UserError, match="exclude each other"):
        check(Settings(model="m", latency_model="x", latency_calculator="constant"))
    assert load_step_model(Settings(model="m")) is None

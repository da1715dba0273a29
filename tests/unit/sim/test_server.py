from dataclasses import replace

import pytest

from pointsman.sim.server import identity
from pointsman.sim.settings import Settings


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

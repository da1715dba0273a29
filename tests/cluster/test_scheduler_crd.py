"""SchedulerInstall on a real API server: what it accepts, fills in and refuses. What is refused here is refused by the
model, too, with the same words where a rule spans fields.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.controlplane import ControlPlane
from tests.unit.api.test_scheduler import REFUSED
from tests.unit.render.scheduler.installs import SAMPLES, sample

from pointsman.api import SCHEDULER_INSTALL, SchedulerInstall
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION
from pointsman.kube import Client, Key, Object
from pointsman.kube.errors import Invalid

FILE = Path(__file__).parents[2] / "config" / "crd" / "sim.llm-d.io_schedulerinstalls.yaml"


@pytest.fixture(scope="module", autouse=True)
def defined(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("apply", "-f", str(FILE))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{SCHEDULER_INSTALL}")
    yield
    plane.kubectl("delete", "-f", str(FILE))


def document(namespace: str, **spec: Any) -> Object:
    return {
        "apiVersion": SCHEDULER_INSTALL.api_version,
        "kind": SCHEDULER_INSTALL.kind,
        "metadata": {"name": "install", "namespace": namespace},
        "spec": {"simulatorNamespace": "sims", **spec},
    }


async def test_the_definition_has_no_fault(client: Client) -> None:
    found = await client.get(CUSTOM_RESOURCE_DEFINITION, Key("", str(SCHEDULER_INSTALL)))
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions["Established"] == "True"


@pytest.mark.parametrize("name", ["", "_minimal"])
async def test_samples_mean_the_same_on_the_server(
    plane: ControlPlane, client: Client, namespace: str, name: str
) -> None:
    raw = yaml.safe_load((SAMPLES / f"sim_v1alpha1_schedulerinstall{name}.yaml").read_text())
    raw["metadata"]["namespace"] = namespace
    plane.kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(raw))
    found = await client.get(SCHEDULER_INSTALL, Key(namespace, raw["metadata"]["name"]))
    assert SchedulerInstall.model_validate(found).spec == sample(name).spec


async def test_defaults_are_filled_in_and_null_is_left_out(client: Client, namespace: str) -> None:
    raw = document(namespace, epp={"port": None}, gateway={}, routing={}, envoyFilter=None, proxyService={"port": 80})
    spec = (await client.create(SCHEDULER_INSTALL, raw))["spec"]
    assert spec["proxyService"] == {"enabled": True, "name": "gaie-inference-scheduling-proxy", "port": 80}
    assert (spec["epp"]["port"], spec["epp"]["configProfile"]) == (9002, "default")
    assert (spec["gateway"]["listenerPort"], spec["gateway"]["className"]) == (80, "istio")
    assert spec["routing"]["httpRouteName"] == "llm-d-inference-scheduling"


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=lambda value: str(value)[:40])
async def test_refused(plane: ControlPlane, client: Client, namespace: str, spec: dict[str, Any], words: str) -> None:
    if "hashBlockSize" in words:  # a field that nobody knows: kubectl says so, the API itself drops it
        with pytest.raises(AssertionError, match=r'unknown field "spec\.epp\.hashBlockSize"'):
            plane.kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(document(namespace, **spec)))
        return
    with pytest.raises(Invalid) as caught:
        await client.create(SCHEDULER_INSTALL, document(namespace, **spec))
    assert words in str(caught.value)

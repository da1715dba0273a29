"""A gateway that knows no endpoint but the one it is told of, as on a cluster: where DNS is behind the picker."""

import httpx
import yaml
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import load
from tests.unit.render.scheduler.installs import find, rendered

from pointsman.render.manifests.facts import Facts

SLOW = ("--time-to-first-token", "50ms", "--max-num-seqs", "64")
ONE = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: active-request-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: max-score-picker}]
"""
WISHES = {"by_address": True, "failure_mode": "FailOpen", "simulator": SLOW, "picker": ("--config-text", ONE)}


async def test_every_request_is_answered_where_the_picker_said(start_lab: StartLab) -> None:
    lab = await start_lab(**WISHES)
    await follows(lab)


async def follows(lab: Lab) -> None:
    """See every request answered where the picker said, whatever header a client forged."""
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2}
    seen = set()
    async with httpx.AsyncClient(base_url=lab.url) as http:
        for number in range(12):
            request = {"x-request-id": f"one-{number}", "x-gateway-destination-endpoint": str(lab.pods["pod-0"])}
            answer = await http.post("/v1/completions", json=body, headers=request)
            assert [answer.headers["x-inference-pod"]] == await lab.picked(f"one-{number}")
            seen.add(answer.headers["x-inference-pod"])
    assert len(seen) > 1


async def test_the_envoy_of_an_install_follows_picks_and_outlives_its_picker(start_lab: StartLab) -> None:
    """Its configuration as the operator writes it where there is no Istio, and nothing else of the operator."""
    made = rendered(facts=Facts())
    assert made.way == "OwnEnvoy"
    text = find(made, "ConfigMap", "infra-inference-scheduling-inference-gateway")["data"]["envoy.yaml"]
    lab = await start_lab(**WISHES | {"bootstrap": yaml.safe_load(text)})
    await follows(lab)
    async with load(lab.url, clients=6) as tally:
        await tally.grows(20)
        lab.pickers[0].kill()
        await tally.grows(60)
    assert set(tally.answers) == {200}


async def test_new_endpoint_serves_as_soon_as_the_picker_knows_it(start_lab: StartLab) -> None:
    lab = await start_lab(**WISHES)
    await lab.picker_has(["pod-0"])
    async with load(lab.url, clients=12) as tally:
        await tally.grows(30)
        await lab.picker_has(["pod-1", "pod-2"])
        await tally.served_by(["pod-1", "pod-2"])
    assert set(tally.answers) == {200}


async def test_endpoint_killed_under_load_is_picked_for_again(start_lab: StartLab) -> None:
    lab = await start_lab(**WISHES)
    async with load(lab.url, clients=12) as tally:
        await tally.served_by(lab.pods)
        lab.simulators["pod-1"].kill()
        await tally.grows(150)
    assert set(tally.answers) == {200}


async def test_without_the_picker_the_service_serves(start_lab: StartLab) -> None:
    lab = await start_lab(**WISHES)
    async with load(lab.url, clients=12) as tally:
        await tally.served_by(lab.pods)
        lab.pickers[0].kill()
        await tally.grows(50)
        before = tally.pods.copy()
        await tally.grows(50)
    assert set(tally.answers) == {200}
    assert {pod for pod in lab.pods if tally.pods[pod] > before[pod]} == {"pod-0"}

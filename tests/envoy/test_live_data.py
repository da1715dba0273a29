"""What the picker knows of real model servers, what it does when they lie still, and what it tells Prometheus."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab
from tests.envoy.load import completion, load
from tests.waiting import until

SLOW = ("--time-to-first-token", "200ms", "--max-num-seqs", "1")


async def row(lab: Lab, name: str) -> dict[str, Any]:
    (found,) = [one for one in await lab.rows() if one["name"] == name]
    return found


def when(lab: Lab, name: str, condition: Callable[[dict[str, Any]], bool]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return condition(await row(lab, name))

    return holds


async def page(lab: Lab) -> dict[tuple[str, ...], float]:
    """Return the picker's metrics by name and label values in order."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://{lab.picker_metrics[0]}/metrics")).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_load_that_others_bring_is_seen_and_avoided(start_lab: StartLab) -> None:
    """Requests that did not come through this picker are known from the model server's metrics alone."""
    lab = await start_lab(replicas=2, simulator=SLOW)
    direct = f"http://{lab.pods['pod-0']}/v1/completions"
    async with httpx.AsyncClient(timeout=30) as http, asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(http.post(direct, json=completion()))
        await until(when(lab, "pod-0", lambda one: bool(one["scraped"]) and one["scraped"]["waiting"] >= 10))
        await until(when(lab, "pod-0", lambda one: one["scraped"]["age_seconds"] < 1))
        seen = await row(lab, "pod-0")
        assert seen["inflight"] == 0
        assert seen["ranked_by"]["waiting"] >= 5
        answers = [await http.post(f"{lab.url}/v1/completions", json=completion()) for _ in range(4)]
        assert {answer.headers["x-inference-pod"] for answer in answers} == {"pod-1"}


async def test_a_model_server_that_hangs_loses_our_trust_but_not_its_place(start_lab: StartLab) -> None:
    lab = await start_lab(replicas=3, picker=("--metrics-staleness-threshold", "1s"))
    await until(when(lab, "pod-0", lambda one: one["scraped"] is not None))
    lab.simulators["pod-0"].send(signal.SIGSTOP)
    await until(when(lab, "pod-0", lambda one: one["scraped"]["age_seconds"] > 1.2))
    for name in ("pod-1", "pod-2"):  # one that hangs costs the others nothing
        await until(when(lab, name, lambda one: one["scraped"]["age_seconds"] < 0.6))

    async def told() -> bool:
        ages = {key[1]: value for key, value in (await page(lab)).items() if key[0] == "pointsman_metrics_age_seconds"}
        return ages["pod-0"] > 1.2 > max(ages["pod-1"], ages["pod-2"])

    await until(told)
    lab.simulators["pod-0"].send(signal.SIGCONT)
    await until(when(lab, "pod-0", lambda one: one["scraped"]["age_seconds"] < 0.6))


async def test_prometheus_is_told_what_happened(start_lab: StartLab) -> None:
    lab = await start_lab(replicas=2, picker=("--enable-grpc-stream-metrics",))
    async with load(lab.url, clients=4, tokens=3) as tally:
        await tally.grows(30)
    found = await page(lab)
    model = (MODEL, MODEL)
    row_labels = (*model, "default-flow", "0")
    assert found["llm_d_epp_request_total", *row_labels] == tally.total
    assert found["inference_objective_request_total", *model, "0"] == tally.total
    assert found["inference_objective_running_requests", MODEL] == 0
    assert found["llm_d_epp_request_duration_seconds_count", *row_labels] == tally.total
    assert found["inference_objective_request_sizes_count", *model] == tally.total
    assert found["inference_objective_output_tokens_count", *model] == tally.total
    assert tally.total <= found["inference_objective_output_tokens_sum", *model] <= 3 * tally.total
    assert found["inference_pool_ready_pods", "file"] == 2
    attempts = [value for key, value in found.items() if key[:2] == ("llm_d_epp_scheduler_attempts_total", "success")]
    assert sum(attempts) >= tally.total
    streams = [value for key, value in found.items() if key[0] == "llm_d_epp_extproc_streams_total"]
    assert sum(streams) >= tally.total
    assert found["llm_d_epp_request_processing_duration_seconds_count",] >= tally.total
    scorers = [key for key in found if key[0] == "llm_d_epp_plugin_duration_seconds_count" and "queue-scorer" in key]
    assert scorers

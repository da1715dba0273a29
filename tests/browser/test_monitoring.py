"""Dashboards and alert rules: every query, evaluated by a real Prometheus that scrapes our stack."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.browser.looking import CONFIG, ask
from tests.envoy.harness import Lab
from tests.envoy.load import load
from tests.ports import fresh_port
from tests.waiting import eventually
from tools import grafana

from pointsman.core.documents import read_yaml, to_yaml
from pointsman.core.files import replace
from pointsman.local.processes import die_with_parent

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = grafana.FOLDER / "alerts.yaml"
_WORD = re.compile(r"\b(?:llm_d_epp|pointsman|vllm:)[a-z0-9_:]+")
_LIMIT = re.compile(r"^\((.*)\) (?:>|<|==) [\d.]+$")


def queries() -> dict[str, str]:
    """Return every query of every dashboard, by where it stands."""
    found = {}
    for path in sorted(grafana.FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "30s")
                found[f"{path.stem}: {panel['title']}: {target['refId']}"] = query
    return found


def alerts() -> dict[str, str]:
    """Return the values that alerts compare with a limit."""
    (group,) = read_yaml(RULES)["groups"]
    found = {}
    for rule in group["rules"]:
        value = _LIMIT.match(rule["expr"])
        assert value is not None, f"{rule['alert']}: write (value) > limit"
        found[rule["alert"]] = value[1]
    return found


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that scrapes a stack."""

    url: str

    async def ask(self, path: str, **parameters: str) -> Any:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, verify=False, timeout=20) as http:
            answer = (await http.get(f"/api/v1/{path}", params=parameters)).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def values(self, query: str) -> list[float]:
        return [float(row["value"][1]) for row in (await self.ask("query", query=query))["result"]]


@pytest.fixture(scope="module")
def prometheus(lab: Lab, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder, port = tmp_path_factory.mktemp("prometheus"), fresh_port()
    jobs = {"picker": [str(address) for address in lab.picker_metrics], "vllm": [str(pod) for pod in lab.pods.values()]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": each}]} for job, each in jobs.items()],
    }
    (folder / "prometheus.yml").write_text(to_yaml(config))
    flags = ["--config.file", "prometheus.yml", "--storage.tsdb.path", "data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "prometheus", *flags],
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, takes no lock
        )
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(prometheus: Prometheus, lab: Lab) -> AsyncIterator[Prometheus]:
    """Return it once it has seen traffic: streamed and not, with prompts that were seen before."""

    async def reads() -> None:
        assert len(await prometheus.values("up == 1")) == len(lab.pods) + 1

    await eventually(reads)
    for _ in range(3):
        async with load(lab.url, clients=4, tokens=4, stream=True) as tally:
            await tally.grows(10)
        for _ in range(3):
            await ask(lab, prompt="The same beginning, again and again. " * 40)
        await asyncio.sleep(1.1)  # Prometheus looks once a second
    yield prometheus


async def test_every_query_of_every_dashboard_has_an_answer(scraped: Prometheus) -> None:
    empty = dict(queries())
    assert len(empty) > 40

    async def answered() -> None:
        for name, query in list(empty.items()):
            values = await scraped.values(query)
            if values and not any(value != value for value in values):  # noqa: PLR0124 - NaN
                del empty[name]
        assert not empty

    await eventually(answered)


async def test_every_name_is_one_that_is_scraped(scraped: Prometheus) -> None:
    known = set(await scraped.ask("label/__name__/values"))
    words = {word for query in (*queries().values(), *alerts().values()) for word in _WORD.findall(query)}
    # A counter by label is there once it has counted; its picker has not failed in these ways.
    later = {"llm_d_epp_request_error_total", "pointsman_refusals_total", "llm_d_epp_datalayer_poll_errors_total"}
    families = await scraped.ask("targets/metadata", match_target='{job="picker"}', limit="10000")
    announced = {row["metric"] for row in families}
    assert words - known <= later and (words - known) <= announced


async def test_prometheus_takes_every_rule_and_every_value_has_an_answer(scraped: Prometheus) -> None:
    async def healthy() -> None:
        (group,) = (await scraped.ask("rules"))["groups"]
        assert {rule["name"]: rule["health"] for rule in group["rules"]} == dict.fromkeys(alerts(), "ok")

    await eventually(healthy)
    for name, value in alerts().items():
        if name != "LlmDPickerGone":
            assert await scraped.values(value), name
    assert await scraped.values("absent(llm_d_epp_ready_endpoints)") == []


async def test_an_alert_fires_for_its_cause(scraped: Prometheus, lab: Lab) -> None:
    (group,) = read_yaml(RULES)["groups"]
    (rule,) = [rule["expr"] for rule in group["rules"] if rule["alert"] == "LlmDConfigurationRefused"]
    try:
        replace(lab.folder / "config.yaml", "kind: Wrong\n")

        async def fires() -> None:
            assert await scraped.values(rule)
            firing = [each["labels"]["alertname"] for each in (await scraped.ask("alerts"))["alerts"]]
            assert "LlmDConfigurationRefused" in firing

        await eventually(fires)
    finally:
        replace(lab.folder / "config.yaml", CONFIG)

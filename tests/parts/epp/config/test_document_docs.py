"""What the documentation says about configurations and plugins is true."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.epp.plugins.making import endpoint, request

from pointsman.core.documents import parse_yaml
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import DEFAULT_CONFIG, load
from pointsman.epp.config.follow import ConfigFollower

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def builder() -> Builder:
    return Builder(clock=lambda: 0.0, rng=random.Random(7))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_the_example_plugin_works_as_written(folder: Path) -> None:
    (folder / "headroom.py").write_text(blocks("how-to/write-a-plugin.md", "python")[0])
    config = folder / "config.yaml"
    config.write_text(blocks("how-to/write-a-plugin.md", "yaml")[0])
    scheduler = ConfigFollower(builder=builder(), path=config).current.scheduler
    views = [endpoint("busy", inflight_requests=6), endpoint("free", inflight_requests=1)]
    outcome = scheduler.decide(request(), views)
    assert outcome.picked.first.name == "free"
    assert list(outcome.picked.scores) == pytest.approx([2 * 0.25, 2 * 0.875])
    assert scheduler.decide(request(priority=-1), views).picked.scores[0] == 0


def test_the_example_that_consumes_works_as_written(folder: Path) -> None:
    (folder / "coldest.py").write_text(blocks("how-to/write-a-plugin.md", "python")[1])
    config = folder / "config.yaml"
    config.write_text("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: coldest:Coldest}]")
    built = ConfigFollower(builder=builder(), path=config).current
    assert "approx-prefix-cache-producer" in built.made
    assert built.scheduler.decide(request(), [endpoint("a")]).picked.scores == [1.0]


def test_the_example_that_predicts_works_as_written(folder: Path) -> None:
    (folder / "predictor.py").write_text(blocks("how-to/write-a-plugin.md", "python")[2])
    config = folder / "config.yaml"
    config.write_text(blocks("how-to/write-a-plugin.md", "yaml")[1])
    scheduler = ConfigFollower(builder=builder(), path=config).current.scheduler
    asked = request(headers={"x-llm-d-slo-ttft-ms": "350", "x-llm-d-slo-tpot-ms": "50"})
    views = [endpoint(f"e{count}", waiting=count, running=2 * count) for count in range(5)]
    kept = scheduler.decide(asked, views).picked
    assert [each.name for each in kept.candidates] == ["e0", "e1", "e2"], "those with a TTFT of at most 350 ms"
    assert kept.first.name == "e2", "with least to spare"


def test_the_configuration_page_shows_what_loads() -> None:
    example, tokens, sidecars, default = blocks("reference/configuration.md", "yaml")
    assert builder().build(load(example)).plan.warnings == ()
    head = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
    assert builder().build(load(head + tokens)).scheduler.needs([]).tokenizer is not None
    predictor = builder().build(load(head + sidecars)).scheduler.needs([]).predictor
    assert predictor is not None
    assert len(predictor.addresses) == 2
    assert parse_yaml(default, name="page") == parse_yaml(DEFAULT_CONFIG, name="code")


def test_the_page_of_plugins_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "plugins-reference")]
    written = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (DOCS / "reference" / "plugins.md").read_text() == written, "run tools/plugins-reference"

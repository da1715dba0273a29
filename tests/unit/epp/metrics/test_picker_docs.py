"""The reference names every family of a real picker, and no family that is not there."""

import random
import re
from pathlib import Path

import pytest

from pointsman.epp.server import PickerServer
from pointsman.epp.settings import Settings

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"


async def test_the_reference_is_complete_and_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    picker = PickerServer(Settings(enable_grpc_stream_metrics=True), rng=random.Random(1))
    picker.show_metrics()
    page = picker.parts.metrics.render().decode()
    shown = set(re.findall(r"^# TYPE ((?:llm_d_epp|pointsman)_\S+) ", page, re.MULTILINE))
    text = PAGE.read_text().partition("## What llm-d has")[0]
    documented = set(re.findall(r"`((?:llm_d_epp|pointsman)_[a-z0-9_]+)`", text))
    assert documented == shown


async def test_old_names_are_as_documented() -> None:
    picker = PickerServer(Settings(), rng=random.Random(1))
    picker.show_metrics()
    page = picker.parts.metrics.render().decode()
    shown = set(re.findall(r"^# TYPE (inference_objective_\S+) ", page, re.MULTILINE))
    section = PAGE.read_text().partition("## Requests")[2].partition("## Pool")[0]
    cells = [line.rsplit("|", 2)[1] for line in section.splitlines() if line.startswith("| `llm_d_epp")]
    documented = {f"inference_objective_{name}" for cell in cells for name in re.findall(r"^ `([a-z_]+)`", cell)}
    assert documented == shown

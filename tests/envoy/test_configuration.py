"""The configuration through Envoy: one's own plugin decides, an edit costs no request, a recording decides again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.envoy.conftest import StartLab
from tests.envoy.load import load
from tests.waiting import until

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
PLUGIN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class ByName:
    prefer: str

    def score(self, request, endpoints):
        return [1.0 if each.name == self.prefer else 0.0 for each in endpoints]
"""


def write(path: Path, *, prefer: str) -> None:
    path.write_text(f"{HEAD}plugins: [{{type: 'by_name_plugin:ByName', parameters: {{prefer: {prefer}}}}}]\n")


async def test_a_plugin_from_a_file_decides_and_an_edit_under_load_costs_no_request(
    start_lab: StartLab, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    (tmp_path / "by_name_plugin.py").write_text(PLUGIN)
    write(config, prefer="pod-1")
    recording = tmp_path / "decisions.jsonl"
    lab = await start_lab(picker=("--config-file", str(config), "--explain", "--record", str(recording)))
    async with load(lab.url, clients=8) as tally:
        await tally.grows(50)
        assert set(tally.pods) == {"pod-1"}, str(tally)
        write(config, prefer="pod-2")
        await tally.served_by(["pod-2"])
        config.write_text(HEAD + "plugins: [{type: nonsense}]")

        async def refused() -> bool:
            return "nonsense" in lab.pickers[0].log.read_text()

        await until(refused)
        before = tally.pods["pod-1"]
        await tally.grows(50)
        assert tally.pods["pod-1"] == before, "the last good configuration stays"
    assert set(tally.answers) == {200}, str(tally)
    check_recording(recording, config)


def check_recording(recording: Path, config: Path) -> None:
    """Replay what was just recorded: nothing differs by the last configuration's twin but what came before it."""
    write(config, prefer="pod-0")
    shown = replay(str(recording), "--config", str(config), "--show", "3")
    total = sum(1 for _ in recording.open())
    assert f"{total} decisions replayed: {total} would be different" in shown, shown
    assert "decisions replayed: 0 would" in replay(str(recording), "--config", str(same(config))), "anyone will do"


def same(config: Path) -> Path:
    """A configuration that has no preference, so that every pick is one of its best."""
    config.write_text(HEAD + "plugins: [{type: random-picker}]")
    return config


def replay(*arguments: Any) -> str:
    command = [sys.executable, "-m", "pointsman", "replay", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

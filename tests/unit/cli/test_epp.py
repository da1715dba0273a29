"""`pointsman epp check` and `pointsman replay`, as a person types them."""

from pathlib import Path

import pytest

from pointsman.cli import main

GOOD = """
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: by-label, parameters: {label: gpu, allowsNoLabel: true}}, {type: queue-scorer}]
"""
BAD = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorrer}, {type: load-aware-scorer, parameters: {treshold: 1}}]
"""


def run(*argv: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    return int(caught.value.code or 0)


def test_a_good_file_is_printed_as_it_will_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert run("epp", "check", str(file)) == 0
    shown = capsys.readouterr()
    assert "type: max-score-picker" in shown.out and "weight: 1.0" in shown.out
    assert shown.err == f"{file}: warning: plugins[0].type: by-label is deprecated: use label-selector-filter\n"
    again = tmp_path / "again.yaml"
    again.write_text(shown.out)
    assert run("epp", "check", str(again)) == 0
    assert capsys.readouterr().out == shown.out


def test_a_bad_file_is_told_every_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    assert run("epp", "check", str(file)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split(": ")[1] for line in shown.err.splitlines()] == [
        "plugins[0].type",
        "plugins[1].parameters.treshold",
    ]


def test_mistakes_of_all_kinds_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the document, of parameters, of references, and those that show when a plugin is made."""
    (tmp_path / "many_mistakes.py").write_text(
        "class Fails:\n"
        "    def __init__(self) -> None:\n"
        "        raise RuntimeError('no such device')\n"
        "    def score(self, request, endpoints):\n"
        "        return []\n"
    )
    file = tmp_path / "many.yaml"
    file.write_text(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
colour: blue
plugins:
- {type: "many_mistakes:Fails"}
- {type: load-aware-scorer, parameters: {treshold: 1}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: nobody}}
- {type: no-hit-lru-scorer, parameters: {prefixMatchInfoProducerName: load-aware-scorer}}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: decidr}}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: load-aware-scorer}, {pluginRef: nobody}]}
"""
    )
    assert run("epp", "check", str(file)) == 2
    told = dict(line.removeprefix(f"{file}: ").split(": ", 1) for line in capsys.readouterr().err.splitlines())
    assert told.pop("plugins[0]").endswith("cannot be made: RuntimeError: no such device")
    assert "'nobody', which is no plugin" in told.pop("plugins[2]")
    assert "'decidr', which is no plugin" in told.pop("plugins[4]")
    assert "nobody" in told.pop("schedulingProfiles[0].plugins[1].pluginRef")
    assert set(told) == {"colour", "plugins[1].parameters.treshold"}


@pytest.mark.parametrize("text", [None, "a: ["], ids=["no such file", "not YAML"])
def test_what_cannot_be_read_is_one_sentence(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    if text is not None:
        file.write_text(text)
    assert run("epp", "check", str(file)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pointsman: ") and "file.yaml" in line


def test_a_replay_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = tmp_path / "empty.jsonl"
    recording.write_text("")
    assert run("replay", str(recording)) == 0
    assert capsys.readouterr().out == "0 decisions replayed: 0 would be different\n"
    assert run("replay", str(tmp_path / "none.jsonl")) == 2
    assert "cannot be read" in capsys.readouterr().err

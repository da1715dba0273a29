"""`pointsman epp check` says no exactly where the picker would."""

import random
from pathlib import Path

import pytest

from pointsman.cli.epp import check
from pointsman.core.errors import UserError
from pointsman.epp.assembly import Assembly
from pointsman.epp.settings import Settings

HEAD = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
ENGINES = "plugins:\n- {type: core-metrics-extractor, parameters: {%s}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(ENGINES % "defaultEngine: sgland", "defaultEngine: 'sgland' is unknown", id="engine"),
        pytest.param(
            ENGINES % "engineConfigs: [{name: own, queuedRequestsSpec: 'a{b'}]", "queuedRequestsSpec", id="metric"
        ),
        pytest.param("plugins: [{type: queue-scorr}]\n", "did you mean 'queue-scorer'?", id="type"),
    ],
)
def test_what_the_picker_refuses_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(UserError) as caught:
        Assembly(Settings(config_file=file), rng=random.Random(7))
    assert check(file) == 2
    said = capsys.readouterr().err
    assert words in said
    assert words in str(caught.value)


def test_warnings_are_refused_where_that_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "plugins: [{type: tokenizer}]\n")
    assert check(file) == 0
    assert "warning: plugins[0].type: tokenizer is deprecated" in capsys.readouterr().err
    assert check(file, strict=True) == 2
    captured = capsys.readouterr()
    assert "plugins[0].type: tokenizer is deprecated: use token-producer" in captured.err
    assert captured.out == ""

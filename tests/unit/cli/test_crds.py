"""`pointsman crds` without a cluster: files judged against files, and one sentence for each mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.crds.schemas import definition, version

from pointsman import cli

SMALLER = {"type": "object", "properties": {}}


def write(path: Path, *documents: Any) -> str:
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    return str(path)


@pytest.mark.parametrize(
    ("before", "after", "code", "says"),
    [
        pytest.param(definition(), definition(), 0, "same     things.example.dev: no release to no release", id="same"),
        pytest.param(
            definition(version(spec=SMALLER)), definition(), 0, "    safe     v1: spec.a: a field is added", id="safe"
        ),
        pytest.param(
            definition(release="v1.4.0"),
            definition(version(spec=SMALLER), release="v1.5.0"),
            1,
            "BREAKING things.example.dev: v1.4.0 to v1.5.0\n    BREAKING v1: spec.a: the field is removed",
            id="breaking",
        ),
        pytest.param(definition(name="others.example.dev"), definition(), 0, "new      things.example.dev", id="new"),
    ],
)
def test_check_against_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: Any, after: Any, code: int, says: str
) -> None:
    old, new = write(tmp_path / "old.yaml", before.document), write(tmp_path / "new.yaml", after.document)
    assert cli._run(["crds", "check", new, "--against", old]) == code
    assert says in capsys.readouterr().out


def test_many_safe_changes_are_counted_and_every_breaking_one_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = {f"f{number}": {"type": "string"} for number in range(200)}
    one, all_ = ({"type": "object", "properties": fields} for fields in ({"a": {"type": "string"}}, many))
    small, large = definition(version(spec=one)), definition(version(spec=all_))
    files = [write(tmp_path / f"{name}.yaml", d.document) for name, d in (("small", small), ("large", large))]
    assert cli._run(["crds", "check", files[1], "--against", files[0]]) == 1
    grown = capsys.readouterr().out
    assert grown.count("BREAKING v1") == 1 and "more that are safe" in grown
    assert len(grown.splitlines()) < 60
    assert cli._run(["crds", "check", files[0], "--against", files[1]]) == 1
    assert capsys.readouterr().out.count("BREAKING v1") == 200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["check", "{folder}/missing.yaml"], "cannot be read", id="no-file"),
        pytest.param(["check", "{folder}/service.yaml"], "no CustomResourceDefinition in it", id="no-definition"),
        pytest.param(["check", "{folder}/broken.yaml"], "not valid YAML", id="no-yaml"),
        pytest.param(["check", "{folder}/deep.yaml"], "deeper than 200 levels", id="deep"),
        pytest.param(["install", "--timeout", "0"], "--timeout 0 is no time to wait", id="no-time"),
        pytest.param(["upgrade", "--rollback", "--file", "x"], "exclude each other", id="two-ways"),
        pytest.param(["adopt", "things.example.dev"], "is no definition that we have", id="unknown-name"),
        pytest.param(["status", "--kubeconfig", "{folder}/missing"], "no usable cluster configuration", id="cluster"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    write(tmp_path / "service.yaml", {"kind": "Service"})
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    assert cli._run(["crds", *(word.format(folder=tmp_path) for word in words)]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert len(told.err.strip().splitlines()) == 1

"""Answers from a SQLite file."""

import json
import sqlite3
import struct
from hashlib import sha256
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.engine.chance import Chance
from pointsman.sim.server import open_dataset
from pointsman.sim.settings import Settings
from pointsman.sim.text.dataset import Dataset
from pointsman.sim.text.prompts import Prompt

LAYOUT = "id INTEGER PRIMARY KEY, prompt_hash BLOB, gen_tokens JSON, n_gen_tokens INTEGER"
KNOWN = Prompt("what is the time?")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.sqlite3"
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE llmd ({LAYOUT})")
        key = sha256(struct.pack(f"<{len(KNOWN.ids)}I", *KNOWN.ids)).digest()
        for hashed, words in ((key, ["noon ", "now"]), (key, ["late"]), (b"other", ["a ", "b ", "c ", "d"])):
            tokens = {"strings": words, "numbers": list(range(len(words)))}
            row = (hashed, json.dumps(tokens), len(words))
            db.execute("INSERT INTO llmd (prompt_hash, gen_tokens, n_gen_tokens) VALUES (?, ?, ?)", row)
    db.close()
    return path


@pytest.mark.parametrize(
    ("row", "pieces"),
    [
        pytest.param({"Tokens": [5, 6], "Strings": ["no", "on"]}, ["no", "on"], id="as the Go tool writes it"),
        pytest.param({"numbers": [5, 6], "strings": ["no", "on"]}, ["no", "on"], id="small letters"),
        pytest.param(["no", "on"], ["no", "on"], id="bare texts"),
    ],
)
def test_rows_of_the_go_tool_are_read(tmp_path: Path, row: object, pieces: list[str]) -> None:
    path = one_row(tmp_path, json.dumps(row))
    data = Dataset(path)
    answer = data.answer(KNOWN, Chance(1), max_tokens=9, room=99, ignore_eos=False)
    assert list(answer.pieces) == pieces and len(answer.ids) == 2
    data.close()


@pytest.mark.parametrize(
    ("columns", "row", "complaint"),
    [
        pytest.param("gen_tokens JSON", "[]", "lacks the columns id, prompt_hash, n_gen_tokens", id="columns"),
        pytest.param(None, '{"Tokens": [1], "Strings": []}', "0 Strings and 1 Tokens", id="counts"),
        pytest.param(None, '{"Words": []}', "Strings, a list of texts", id="keys"),
        pytest.param(None, "5", "holds no tokens", id="no object"),
        pytest.param(None, "{", "cannot be used", id="no JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_at_start(
    tmp_path: Path, columns: str | None, row: str, complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        Dataset(one_row(tmp_path, row, columns=columns))


def one_row(tmp_path: Path, row: str, *, columns: str | None = None) -> Path:
    path = tmp_path / "row.sqlite3"
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE llmd ({columns or LAYOUT})")
        if columns is None:
            db.execute("INSERT INTO llmd (prompt_hash, gen_tokens, n_gen_tokens) VALUES (?, ?, ?)", (b"x", row, 2))
    db.close()
    return path


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_known_prompt_gets_one_of_its_answers(file: Path, in_memory: bool) -> None:
    data = Dataset(file, in_memory=in_memory)
    found = {"".join(data.answer(KNOWN, Chance(n), max_tokens=9, room=99, ignore_eos=False).pieces) for n in range(30)}
    assert found == {"noon now", "late"}
    short = data.answer(KNOWN, Chance(1), max_tokens=1, room=99, ignore_eos=False)
    assert (list(short.pieces), short.finish_reason) == (["late"], "length")
    data.close()


def test_an_unknown_prompt_gets_any_answer_that_fits(file: Path) -> None:
    data = Dataset(file)
    other = Prompt("something else")
    for n in range(20):
        assert len(data.answer(other, Chance(n), max_tokens=2, room=99, ignore_eos=False).pieces) <= 2
    assert len(data.answer(other, Chance(1), max_tokens=50, room=99, ignore_eos=True).pieces) == 50
    data.close()


@pytest.mark.parametrize(
    ("prepare", "table", "complaint"),
    [
        pytest.param("missing", "llmd", "does not exist", id="missing"),
        pytest.param("text", "llmd", "cannot be used", id="not SQLite"),
        pytest.param("ok", "nope", "cannot be used", id="no such table"),
        pytest.param("ok", "a; drop", "write a plain name", id="no name"),
    ],
)
def test_a_bad_file_is_one_clear_sentence(file: Path, prepare: str, table: str, complaint: str) -> None:
    if prepare == "missing":
        file.unlink()
    elif prepare == "text":
        file.write_text("hello")
    with pytest.raises(UserError, match=complaint):
        Dataset(file, table=table)


def test_a_dataset_that_is_not_there_yet_is_fetched(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "fetched.sqlite3"
    chosen = Settings(model="m", dataset_path=str(target), dataset_url=file.as_uri())
    data = open_dataset(chosen)
    assert data is not None and target.is_file()
    data.close()
    with pytest.raises(UserError, match="cannot be fetched"):
        open_dataset(Settings(model="m", dataset_path=str(tmp_path / "x"), dataset_url="file:///nonexistent"))

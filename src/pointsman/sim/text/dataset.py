"""Answers from a dataset: a SQLite table of past generations, found by the hash of the prompt's token ids.

The layout is llm-d-inference-sim's (`ds-tool` writes it): columns by name, and in each row the tokens of an answer as
JSON. Its keys are read as Go reads them, in any case: `Tokens` and `Strings` now, `numbers` before, and once a list of
bare texts. A file that is not one is refused at start. A prompt that is known gets one of its answers; any other gets a
random row of fitting length. Rows are chosen by the request's own draws, so a run repeats.
"""

import sqlite3
import struct
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import UserError
from pointsman.sim.engine.chance import Chance
from pointsman.sim.failures import Refusal
from pointsman.sim.text import tokens
from pointsman.sim.text.answers import Answer, speak
from pointsman.sim.text.prompts import Prompt

_COLUMNS = ("id", "prompt_hash", "gen_tokens", "n_gen_tokens")
_SAMPLE = 100  # rows that are read at start


class Generated(msgspec.Struct):
    """One stored answer."""

    strings: list[str]
    numbers: list[int]


class Dataset:
    """An open table of answers."""

    def __init__(self, path: Path, *, table: str = "llmd", in_memory: bool = False) -> None:
        if not table.isidentifier():
            raise UserError(f"--dataset-table-name is {table!r}: write a plain name")
        if not path.is_file():
            raise UserError(f"--dataset-path {path} does not exist: name the SQLite file")
        self._table = table
        try:
            self._db = _open(path, in_memory=in_memory)
            self._check_columns()
            self._rows = self._query(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - an identifier, checked above
            if not self._rows:
                raise UserError(f"--dataset-path {path} holds no answers: fill table {table!r}")
            for row in self._query(f"SELECT gen_tokens FROM {table} ORDER BY id LIMIT {_SAMPLE}"):  # noqa: S608 - as above
                _decode(row[0])
        except (sqlite3.Error, ValueError) as error:
            raise UserError(f"--dataset-path {path} cannot be used: {error}") from None

    def _check_columns(self) -> None:
        found = {row[1] for row in self._query(f"PRAGMA table_info({self._table})")}
        if not found:
            raise ValueError(f"it has no table {self._table!r}: name it with --dataset-table-name")
        missing = [name for name in _COLUMNS if name not in found]
        if missing:
            raise ValueError(f"table {self._table!r} lacks the columns {', '.join(missing)}: write it with ds-tool")

    def answer(self, prompt: Prompt, chance: Chance, *, max_tokens: int | None, room: int, ignore_eos: bool) -> Answer:
        """Return a stored answer of at most `max_tokens`, or exactly so many where the end is to be ignored."""
        limit = min(room, max_tokens) if max_tokens is not None else room
        try:
            found = self._matching(prompt, chance, limit=limit) or self._any(chance, limit=limit)
        except (sqlite3.Error, ValueError) as error:
            raise Refusal(500, f"The dataset holds a row that cannot be read: {error}") from None
        strings, numbers = found.strings[:limit], found.numbers[:limit]
        if ignore_eos and len(strings) < limit:
            more = speak(chance, limit - len(strings))
            strings = strings + more
            numbers = numbers + [tokens.identify(piece) for piece in more]
        return Answer(strings, "length" if len(strings) >= limit else "stop", numbers)

    def _matching(self, prompt: Prompt, chance: Chance, *, limit: int) -> Generated | None:
        key = sha256(struct.pack(f"<{len(prompt.ids)}I", *prompt.ids)).digest()
        rows = self._query(
            f"SELECT gen_tokens, n_gen_tokens FROM {self._table} WHERE prompt_hash = ? ORDER BY id",  # noqa: S608 - as above
            key,
        )
        if not rows:
            return None
        fitting = [row for row in rows if row[1] <= limit]
        return _decode(chance.choice(fitting)[0] if fitting else max(rows, key=lambda row: row[1])[0])

    def _any(self, chance: Chance, *, limit: int) -> Generated:
        where = "WHERE n_gen_tokens <= ?"
        count = self._query(f"SELECT count(*) FROM {self._table} {where}", limit)[0][0]  # noqa: S608 - as above
        base = f"SELECT gen_tokens FROM {self._table}"  # noqa: S608 - as above
        if count:
            rows = self._query(f"{base} {where} ORDER BY id LIMIT 1 OFFSET ?", limit, chance.below(count))
        else:
            rows = self._query(f"{base} ORDER BY id LIMIT 1 OFFSET ?", chance.below(self._rows))
        return _decode(rows[0][0])

    def _query(self, text: str, *values: Any) -> list[Any]:
        with closing(self._db.execute(text, values)) as cursor:
            return cursor.fetchall()

    def close(self) -> None:
        """Release the file."""
        self._db.close()


def _open(path: Path, *, in_memory: bool) -> sqlite3.Connection:
    stored = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    if not in_memory:
        return stored
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with closing(stored):
        stored.backup(memory)
    return memory


def _decode(text: str | bytes) -> Generated:
    """Return a row's answer.

    Raises ValueError when it is none.
    """
    found = msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    if isinstance(found, list):
        found = {"strings": found}
    if not isinstance(found, dict):
        raise ValueError("gen_tokens holds no tokens: write an object with Tokens and Strings")  # noqa: TRY004 - bad data
    by_name = {str(name).lower(): value for name, value in found.items()}
    numbers = by_name.get("tokens", by_name.get("numbers"))
    try:
        strings = msgspec.convert(by_name.get("strings"), list[str])
        ids = [tokens.identify(piece) for piece in strings] if numbers is None else msgspec.convert(numbers, list[int])
    except msgspec.ValidationError as error:
        raise ValueError(f"gen_tokens must hold Strings, a list of texts, and Tokens, their ids: {error}") from None
    if len(strings) != len(ids):
        raise ValueError(f"gen_tokens holds {len(strings)} Strings and {len(ids)} Tokens: as many of both are needed")
    return Generated(strings, ids)

"""Answers from a dataset: a SQLite table of past generations, found by the hash of the prompt's token ids.

The layout is llm-d-inference-sim's (`ds-tool` writes it). A prompt that is known gets one of its answers; any other
gets a random row of fitting length. Rows are chosen by the request's own draws, so a run repeats.
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
from pointsman.sim.text import tokens
from pointsman.sim.text.answers import Answer, speak
from pointsman.sim.text.prompts import Prompt


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
            self._rows = self._query(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - an identifier, checked above
        except sqlite3.Error as error:
            raise UserError(f"--dataset-path {path} cannot be used: {error}") from None
        if not self._rows:
            raise UserError(f"--dataset-path {path} holds no answers: fill table {table!r}")

    def answer(self, prompt: Prompt, chance: Chance, *, max_tokens: int | None, room: int, ignore_eos: bool) -> Answer:
        """Return a stored answer of at most `max_tokens`, or exactly so many where the end is to be ignored."""
        limit = min(room, max_tokens) if max_tokens is not None else room
        found = self._matching(prompt, chance, limit=limit) or self._any(chance, limit=limit)
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
    return msgspec.json.decode(text, type=Generated)

"""What an engine writes about its steps into a log file while it is recorded."""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pointsman.core.errors import UserError
from pointsman.sim.fit.iterations import parse
from pointsman.sim.fit.steplog import LONGEST

_PATIENCE, _PAUSE = 50, 0.1  # looks at a log whose last lines are late, and seconds between them


class EngineLog:
    """A log file that somebody else writes, from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            self._from = file.seek(0, os.SEEK_END)

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise UserError(f"--log {self.path} cannot be read: {error.strerror}: name vLLM's log file") from None

    def lines(self) -> list[str]:
        """Return the lines about steps since the beginning; of a file that was begun anew, all of them.

        Raises UserError when the file cannot be read.
        """
        with self._open() as file:
            file.seek(self._from if file.seek(0, os.SEEK_END) >= self._from else 0)
            texts = (line.decode(errors="replace") for line in iter(partial(file.readline, LONGEST), b""))
            return [text for text in texts if next(parse([text]), None) is not None]

    async def upto(self, prompt_tokens: int) -> list[str]:
        """Return the same once all prompts that were sent are in them, or nothing more comes."""
        for _ in range(_PATIENCE):
            found = self.lines()
            if sum(each.prefill for each in parse(found)) >= prompt_tokens:
                break
            await asyncio.sleep(_PAUSE)
        return found

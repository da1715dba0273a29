"""The configuration in use, and the next one when the file changes.

A new version is read, checked and built completely before anything uses it; then it is handed over in one step between
two picks. A version that is wrong is reported and counted, and the last good one stays. Plugins that did not change
keep their state, and requests that are under way never notice.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.core.watch import watch_files
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import draft

log = get_logger(__name__)


class ConfigFollower:
    """Where the configuration comes from: a file, a text, or the default."""

    def __init__(
        self,
        *,
        builder: Builder,
        path: Path | None = None,
        text: str = "",
        allow_experimental: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._builder = builder
        self._path = path
        self.name = str(path) if path is not None else "--config-text" if text else "default configuration"
        self._experimental = allow_experimental
        if path is not None:
            allow_imports(path.parent)
            text = read_text(path)
        self._text: str | bytes = text
        self.reloads = 0
        self.rejected = 0
        self.since = clock()  # when the current one was taken into use
        self.refusal = ""  # what was wrong with the last version that was refused
        self.refused_at = 0.0
        self.current = self._build(text, previous=None)

    def _build(self, text: str | bytes, *, previous: Built | None) -> Built:
        plan, problems = draft(text, name=self.name, allow_experimental=self._experimental)
        return self._builder.build(plan, problems=problems, previous=previous, name=self.name)

    def announce(self) -> None:
        """Tell what should be changed in the configuration some day."""
        for warning in self.current.plan.warnings:
            log.warning("configuration: to be changed", file=self.name, what=warning)

    def _complete(self, text: str | None) -> str:
        """Return a new version, unless it is none: a file that somebody writes to is empty for a moment.

        At the start an empty file is the default; later that would replace what runs by something nobody wrote.
        """
        if text is None:
            raise UserError(f"{self._path}: cannot be read")
        if not text.strip():
            raise UserError(f"{self._path}: is empty: write the whole configuration, or restart for the default")
        return text

    async def follow(self, use: Callable[[Built], None]) -> None:
        """Hand over every new version of the file, until cancelled."""
        if self._path is None:
            return
        async for (content,) in watch_files([self._path]):
            self.take(content, use=use)

    def take(self, content: bytes | None, *, use: Callable[[Built], None]) -> None:
        """Use a new version of the file, if it is one and can be used."""
        text = content.decode("utf-8", "replace") if content is not None else None
        if text == self._text:
            return
        try:
            text = self._complete(text)
            built = self._build(text, previous=self.current)
        except UserError as error:
            self.rejected += 1
            self.refusal, self.refused_at = str(error), self._clock()
            log.warning("configuration: not used, the last good one stays", reason=str(error))
            return
        self._text = text
        self.current = built
        self.reloads += 1
        self.announce()
        self.since = self._clock()
        use(built)
        log.info("configuration: reloaded", file=self.name)


def read_text(path: Path) -> str:
    """Return the text of a configuration file.

    Raises UserError when it cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def allow_imports(folder: Path) -> None:
    """Let `module:Class` name a module that lies beside the configuration file."""
    name = str(folder.resolve())
    if name not in sys.path:
        sys.path.append(name)

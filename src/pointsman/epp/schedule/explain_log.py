"""Decisions as lines of JSON in a file: enough to decide again, with another configuration, without the traffic.

A line holds the request as plugins saw it (prompt hashes, never the prompt; headers without secrets), every candidate
as it was, and what was picked by which profile; a traced decision has each plugin's scores too. The file is rotated by
size, so a recording that someone forgot cannot fill a disk. Writing is synchronous: a line is one write.
"""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import UserError
from pointsman.core.files import open_private
from pointsman.core.logs import get_logger
from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Prompt, Request, readable
from pointsman.epp.schedule.decision import Outcome
from pointsman.epp.schedule.records import Record

log = get_logger(__name__)

VERSION = 1
_SECRET = re.compile("auth|cookie|key|secret|password|credential|(?<!session-)token")
"""What makes a header's name one of a secret. A session's token is none: it says where a conversation is served."""
_HIDDEN = "(not recorded)"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded decision."""

    version: int
    id: str
    at: float  # on the picker's monotonic clock, as `updated_at` of the candidates
    headers: dict[str, str]
    has_body: bool
    size: int
    model: str
    target_model: str
    priority: int
    objective: str
    fairness_id: str
    prompt: Prompt | None
    candidates: list[EndpointView]
    picked: dict[str, list[str]]  # targets, by profile
    primary: str
    reason: str
    explain: dict[str, Any] | None = None

    @property
    def request(self) -> Request:
        """The request as it was before producers looked at it."""
        return Request(
            id=self.id,
            headers=self.headers,
            has_body=self.has_body,
            size=self.size,
            model=self.model,
            target_model=self.target_model,
            priority=self.priority,
            objective=self.objective,
            fairness_id=self.fairness_id,
            prompt=self.prompt,
        )

    def outcome(self, request: Request) -> Outcome:
        """Return what really happened, as plugins are told of it."""
        by_target = {each.target: each for each in self.candidates}
        results: dict[str, Picked | None] = {}
        for profile, targets in self.picked.items():
            views = [by_target[target] for target in targets if target in by_target]
            results[profile] = (
                Picked(endpoints=views, candidates=self.candidates, scores=[0.0] * len(self.candidates))
                if views
                else None
            )
        return Outcome(request=request, results=results, primary=self.primary)


def to_line(record: Record) -> Line:
    """Return a record as it is written."""
    request = record.request
    results: Mapping[str, Picked | None] = record.outcome.results if record.outcome is not None else {}
    return Line(
        version=VERSION,
        id=readable(request.id),
        at=record.at,
        headers={
            readable(name): _HIDDEN if _SECRET.search(name) else readable(value)
            for name, value in request.headers.items()
        },
        has_body=request.has_body,
        size=request.size,
        model=request.model,
        target_model=request.target_model,
        priority=request.priority,
        objective=request.objective,
        fairness_id=request.fairness_id,
        prompt=request.prompt,
        candidates=list(record.candidates),
        picked={
            name: [] if picked is None else [each.target for each in picked.endpoints]
            for name, picked in results.items()
        },
        primary=record.outcome.primary if record.outcome is not None else "",
        reason=record.reason,
        explain=record.trace.to_json() if record.trace is not None else None,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"cannot record a {type(value).__name__}")


class DecisionRecorder:
    """Appends decisions to a file, and begins another when it has grown too large."""

    def __init__(self, path: Path, *, max_bytes: int = 256 << 20, keep: int = 4) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._file: io.FileIO | None = self._open()
        self.lines = 0
        self.errors = 0

    def _open(self) -> io.FileIO:
        try:
            return open_private(self._path)
        except OSError as error:
            raise UserError(f"--record {self._path}: cannot be written: {error.strerror}") from None

    def __call__(self, record: Record) -> None:
        """Write a decision that was made with a body; never costs a request."""
        if record.outcome is None or self._file is None:
            return
        try:
            self._file.write(self._encode(to_line(record)) + b"\n")
            self.lines += 1
            if self._file.tell() >= self._max_bytes:
                self._rotate()
        except (OSError, UserError, NotImplementedError, UnicodeError) as error:
            self.errors += 1
            if self.errors == 1:
                log.warning("recording: a decision was not written", file=str(self._path), reason=str(error))

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._numbered(number).replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))
        self._file = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_recording(path: Path) -> Iterator[Line]:
    """Yield the decisions in a recording.

    Raises UserError naming the line that is none; a last line that was cut off is left out.
    """
    decode = msgspec.json.Decoder(Line).decode
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    return
                try:
                    line = decode(text)
                except msgspec.DecodeError as error:
                    raise UserError(f"{path}:{number}: not a recorded decision: {error}") from None
                if line.version != VERSION:
                    raise UserError(f"{path}:{number}: version {line.version} of recordings is not known to this one")
                yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None

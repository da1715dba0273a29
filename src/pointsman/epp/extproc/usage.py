"""What a response cost, read from its `usage` as it passes: kept is only the end of what is not complete.

A document is a whole response, or one event of a streamed one. Its own `usage` counts; of events also that of the
message or response within them, where Anthropic's and OpenAI's newer APIs have it. Whether one that was found is the
document's own shows in what follows it: one brace closes the document, two close what the event is about. So only a
document's end need be kept, and most chunks do not have the word in them and cost one search. Events add up: what a
later one does not say stays as an earlier one said it.
"""

import re
from typing import Any, Literal, Protocol

from pointsman.core.numbers import SAFE, is_count, real
from pointsman.epp.body.grpc import HEAD
from pointsman.epp.body.parsers import Parser
from pointsman.epp.extproc.tokens import Usage, read_said
from pointsman.wire.protobuf import Data, Malformed, fields, read_varint

_MOST_KEPT = 16 << 10  # it is searched again with every chunk, so its sender must not choose how much
_MOST_TRIED = 8  # of the places in one document that may be its usage
_QUIET = re.compile(rb'"(?:[^"\\]|\\.)*"?|[^{}\[\]"]+', re.DOTALL)  # what opens and closes nothing
_BRACES = re.compile(rb"[{}]")
_VALUES = {word: re.compile(word + rb"\s*:\s*(?=\{)") for word in (b'"usage"', b'"meta_info"')}


class ReadsUsage(Protocol):
    """Reads one response."""

    usage: Usage | None

    def feed(self, chunk: bytes, *, end: bool = False) -> None:
        """Take the next part of the body."""


def usage_reader(parser: Parser, *, path: str) -> ReadsUsage:
    """Return what reads the responses to a parser's requests."""
    if parser.reads == "vllm":
        return GrpcUsageReader("embed" if path.endswith("/Embed") else "generate")
    return UsageReader(b'"meta_info"') if parser.name == "sglanghttp-parser" else UsageReader()


class UsageReader:
    """Reads one response in JSON, or in events of JSON."""

    __slots__ = ("_kept", "_streamed", "_word", "usage")

    def __init__(self, word: bytes = b'"usage"') -> None:
        self._word = word  # one of those in `_VALUES`
        self._streamed: bool | None = None  # until the first byte is here
        self._kept = b""  # the end of a document that is not complete
        self.usage: Usage | None = None

    def feed(self, chunk: bytes, *, end: bool = False) -> None:
        """Take the next part of the body."""
        if self._streamed is None:
            first = chunk[:1] if chunk[:1] > b" " else chunk.lstrip()[:1]
            self._streamed = first not in b"{[" if first else None
        data = self._kept + chunk if self._kept else chunk
        stop = len(data) if end else data.rfind(b"\n") + 1 if self._streamed else 0
        if stop and self._word in data:
            for document in data[:stop].split(b"\n") if self._streamed else (data,):
                if self._word in document:
                    self._read(document)
        self._kept = b"" if end else self._worth(data, stop)

    def _worth(self, data: bytes, start: int) -> bytes:
        """Return what must be kept of a document that is not complete: from its first usage on, and only so much."""
        at = data.find(self._word, start)
        if at < 0:
            return data[max(start, len(data) - len(self._word)) :]
        if len(data) - at > _MOST_KEPT:
            self._read(data[at:], whole=False)
            at = len(data) - _MOST_KEPT
        return data[at:]

    def _read(self, document: bytes, *, whole: bool = True) -> None:
        """Take a document's usage; where its end is not here yet, the last that there is."""
        own = within = None
        for found in list(_VALUES[self._word].finditer(document))[-_MOST_TRIED:]:
            text = _object(document, found.end())
            if text is None:
                continue
            rest = document[found.end() + len(text) :]
            closed = b"}" if rest == b"}" or not whole else _closed(rest)  # mostly it comes last
            if closed == b"}":
                own = text
            elif closed == b"}}" and self._streamed:
                within = text
        if own or within:
            self._add(own or within or b"")

    def _add(self, text: bytes) -> None:
        try:
            raw = read_said(text)
        except (ValueError, RecursionError):
            return
        details = raw.prompt_tokens_details or raw.input_tokens_details
        cached = details.cached_tokens if details else None
        self.usage = _sum(
            self.usage,
            prompt=_int(raw.prompt_tokens, raw.input_tokens),
            completion=_int(raw.completion_tokens, raw.output_tokens),
            cached=_int(cached, raw.cache_read_input_tokens, raw.cached_tokens),
        )


def _sum(before: Usage | None, *, prompt: int | None, completion: int | None, cached: int | None) -> Usage:
    """Return the usage with what is said anew."""
    old = before or Usage()
    return Usage(
        prompt=old.prompt if prompt is None else prompt,
        completion=old.completion if completion is None else completion,
        cached=old.cached if cached is None else cached,
    )


def _object(data: bytes, at: int) -> bytes | None:
    """Return the object that begins here, when all of it is there. `usage` holds numbers only, so braces count."""
    stop = data.find(b"}", at) + 1
    if stop and data.find(b"{", at + 1, stop) < 0:  # nothing within it, as mostly
        return data[at:stop]
    depth = 0
    for brace in _BRACES.finditer(data, at):
        depth += 1 if brace[0] == b"{" else -1
        if depth == 0:
            return data[at : brace.end()]
    return None


def _closed(rest: bytes) -> bytes:
    """Return the brackets that are closed here and were opened before."""
    open_ones, closed = 0, bytearray()
    for bracket in _QUIET.sub(b"", rest):
        if bracket in b"{[":
            open_ones += 1
        elif open_ones:
            open_ones -= 1
        else:
            closed.append(bracket)
    return bytes(closed)


def _int(*values: Any) -> int | None:
    """Return the first that is a count, however it is written."""
    for value in values:
        if is_count(value):
            return value
        number = real(value) if isinstance(value, str) else value
        if isinstance(number, float) and 0 <= number <= SAFE:
            return int(number)
    return None


class GrpcUsageReader:
    """Reads the messages of one response of vLLM's service, frame by frame; those that are too large say nothing."""

    __slots__ = ("_kept", "_method", "_skip", "usage")

    def __init__(self, method: Literal["generate", "embed"]) -> None:
        self._method = method
        self._kept = b""
        self._skip = 0  # bytes of a frame that is too large
        self.usage: Usage | None = None

    def feed(self, chunk: bytes, *, end: bool = False) -> None:
        """Take the next part of the body."""
        del end
        gone = min(self._skip, len(chunk))
        self._skip -= gone
        data, at = self._kept + chunk[gone:], 0
        while len(data) - at >= HEAD.size:
            compressed, size = HEAD.unpack_from(data, at)
            stop = at + HEAD.size + size
            if stop > len(data):
                if size > _MOST_KEPT * 16:
                    self._skip, at = stop - len(data), len(data)
                break
            if not compressed:
                self._read(data[at + HEAD.size : stop])
            at = stop
        self._kept = data[at:]

    def _read(self, message: bytes) -> None:
        try:
            found = self._numbers(message)
        except Malformed:
            return
        prompt, completion, cached = found
        if prompt or completion:
            self.usage = _sum(self.usage, prompt=prompt, completion=completion, cached=cached)

    def _numbers(self, message: bytes) -> tuple[int | None, int | None, int | None]:
        """Return prompt, completion and cached tokens: a piece has them one field before a whole answer."""
        if self._method == "embed":
            return _varints(message).get(2), 0, None
        for number, wire, start, stop in fields(message, 0, len(message)):
            if number in {1, 2} and wire == 2:
                said = _varints(message[start:stop])
                first = number + 1
                return said.get(first), said.get(first + 1), said.get(first + 2, 0)
        return None, None, None


def _varints(message: Data) -> dict[int, int]:
    rows = fields(message, 0, len(message))
    return {number: read_varint(message, start)[0] for number, wire, start, _ in rows if wire == 0}

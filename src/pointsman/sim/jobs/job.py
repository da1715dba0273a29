"""One request on its way through an engine: how much of each choice was sent, and the connection that waits for it.

What the answer says is fixed when a job is made (`Spec`), and so is its writer. A job begins when its request was
accepted and ends once: answered, failed, or aborted because the peer left. Tokens come from the engine's steps by
`emit`; nothing is written before the first of them, so that errors keep their status. Writers are pure: they return
bytes and remember nothing. The job alone talks to the connection. Tokens for a peer that does not keep up are held as
numbers, not as bytes: the whole answer is known anyway.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pointsman.core.http import Response
from pointsman.sim.engine.engine import Seq
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import Frame, encode
from pointsman.sim.jobs.spec import ChoiceSpec, Spec
from pointsman.sim.text import tokens
from pointsman.sim.text.prompts import call_text

BITE = 256  # tokens that are written at once


class Sink(Protocol):
    """Where the pieces of an answer go; safe to use after the peer has gone."""

    @property
    def choked(self) -> bool: ...
    def write(self, data: bytes, /) -> None: ...
    def end(self, data: bytes = ..., /) -> None: ...
    def abort(self) -> None: ...


class Caller(Protocol):
    """Who waits for an answer: an HTTP request, or a gRPC call."""

    headers: dict[bytes, bytes]
    on_disconnect: Callable[[], None] | None
    on_choke: Callable[[], None] | None

    def respond(self, response: Response, /) -> None: ...
    def stream(self, *, headers: bytes = ...) -> Sink: ...


class Choice:
    """One sequence of a job: what it will say, and how much of that was sent."""

    __slots__ = (
        "_ids", "answer", "calls", "cursor", "finish_reason", "frame", "index", "job", "last", "prompt", "seq", "sink",
    )  # fmt: skip

    def __init__(self, job: "Job", index: int, spec: ChoiceSpec) -> None:
        self.job = job
        self.index = index
        self.prompt = spec.prompt
        self.answer = spec.answer
        self.finish_reason = spec.finish_reason
        self.calls = spec.calls
        self.last = spec.tokens
        self.cursor = 0
        self.seq: Seq | None = None
        self._ids: Sequence[int] = ()
        self.frame: Frame | None = None  # the writer's, where tokens differ in nothing but their text
        self.sink: Sink | None = None  # set by the job while nothing but tokens can follow

    def emit(self, count: int) -> None:
        """Send the next tokens, and everything that follows the last."""
        first = self.cursor
        self.cursor = end = first + count
        if self.sink is None or end >= self.last:
            self.job.emit(self, first, end)
        elif self.frame is not None and count == 1:  # nearly every token of every stream
            before, after = self.frame
            self.sink.write(before + encode(self.answer.pieces[first]) + after)
        else:
            self.sink.write(self.job.writer.tokens(self, first, end))

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.answer.pieces)

    @property
    def ids(self) -> Sequence[int]:
        """The whole answer as token ids."""
        if not self._ids:
            self._ids = self.answer.ids or [tokens.identify(piece) for piece in self.answer.pieces]
        return self._ids

    def reply_ids(self) -> Sequence[int]:
        """Return the ids by which the next turn of the conversation will know this answer."""
        prompt = self.prompt
        if not prompt.text:  # token ids came in, and go out
            return self.ids
        calls = [call_text(call.name, call.arguments) for call, _, opening in self.calls if opening]
        return tokens.encode(prompt.lead + ("".join(calls) if calls else self.text))

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the engine found in its cache."""
        return self.seq.cached_tokens if self.seq is not None else 0


class Writer(Protocol):
    """The shape of one API. Each method returns bytes for the wire, or nothing; none changes anything."""

    def frame(self, choice: Choice, /) -> Frame | None:
        """What is around the text of every token of a choice, where tokens differ in nothing else."""
        ...

    def begin(self, choice: Choice, /) -> bytes:
        """What precedes a choice's first token."""
        ...

    def tokens(self, choice: Choice, first: int, end: int, /) -> bytes:
        """Some tokens of a choice."""
        ...

    def finish(self, choice: Choice, /) -> bytes:
        """What follows a choice's last token."""
        ...

    def close(self, choices: Sequence[Choice], /) -> bytes:
        """What follows the last choice."""
        ...

    def whole(self, choices: Sequence[Choice], /) -> bytes:
        """The answer in one piece."""
        ...

    def failure(self, refusal: Refusal, choices: Sequence[Choice], /) -> bytes:
        """An error after the answer has begun."""
        ...


class Job:
    """A request, its choices, and the connection that waits for them."""

    __slots__ = (
        "_choked", "_done", "_held", "_open", "_pause", "_stream", "choices", "closed", "request", "spec", "writer",
    )  # fmt: skip

    def __init__(
        self,
        request: Caller,
        spec: Spec,
        writer: Writer,
        *,
        done: Callable[["Job"], None],
        pause: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.request = request
        self.spec = spec
        self.writer = writer
        self.choices = [Choice(self, index, each) for index, each in enumerate(spec.choices)]
        self.closed = False
        self._done = done
        self._pause = pause  # calls back after a while: what comes before the end takes time
        self._stream: Sink | None = None
        self._open = len(self.choices)
        self._choked = False  # the peer reads more slowly than its tokens come
        self._held: dict[Choice, tuple[int, int]] = {}  # tokens that wait until it has caught up

    def emit(self, choice: Choice, first: int, end: int) -> None:
        """Send tokens of a choice that may be its first or its last."""
        if self.spec.cut_at is not None and choice.index == 0 and end > self.spec.cut_at:
            self.cut()
        choice.cursor = end = min(end, choice.last)
        if self.spec.streaming and not self.closed:
            self._send(choice, first, end)
        elif end == choice.last:
            self._end(choice)

    def _send(self, choice: Choice, first: int, end: int) -> None:
        """Write tokens in small pieces, as long as the peer takes them; the rest waits."""
        sink, writer = self._open_stream(), self.writer
        while first < end:
            if self._choked:
                self._held[choice] = self._held.get(choice, (first,))[0], end
                return
            upto = min(first + BITE, end)
            begun = b"" if first else self._begin(choice)
            data = begun + writer.tokens(choice, first, upto)
            first = upto
            if upto == choice.last and self._pause is None:
                self._conclude(choice, data)
            else:
                sink.write(data)
        if end == choice.last and self._pause is not None:
            self._end(choice)
        elif not self._choked and self.spec.cut_at is None:
            choice.sink = sink

    def _begin(self, choice: Choice) -> bytes:
        choice.frame = self.writer.frame(choice)
        return self.writer.begin(choice)

    def _end(self, choice: Choice) -> None:
        """Conclude a choice whose tokens are all there, now or when its image is made."""
        if self._pause is None:
            self._conclude(choice, b"")
        else:
            self._pause(lambda: self._conclude(choice, b""))

    def _open_stream(self) -> Sink:
        if self._stream is None:
            self._stream = self.request.stream(headers=self.spec.headers)
            self._choked = self._stream.choked
            self.request.on_choke = self._choke
        return self._stream

    def _choke(self) -> None:
        """Hold tokens back while the peer does not keep up; then send what was held."""
        self._choked = self._open_stream().choked
        if self._choked:
            for choice in self.choices:
                choice.sink = None
            return
        held, self._held = self._held, {}
        for choice, (first, end) in held.items():
            self._send(choice, first, end)
        if held and self.closed:
            self.release()

    def _conclude(self, choice: Choice, data: bytes) -> None:
        """End a choice, and the job with its last one."""
        self._open -= 1
        if self.closed:
            return
        if self.spec.streaming:
            data += self.writer.finish(choice)
            if self._open:
                self._open_stream().write(data)
            else:
                self._open_stream().end(data + self.writer.close(self.choices))
        elif not self._open:
            self.request.respond(Response(200, self.writer.whole(self.choices), headers=self.spec.headers))
        if not self._open:
            self.closed = True
            self._done(self)

    def release(self) -> None:
        """Drop what refers back to this job: without cycles the memory is free, and warm, for the next request."""
        self.request.on_disconnect = self.request.on_choke = None
        for choice in self.choices:
            choice.seq = None
        self.choices = []

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._held.clear()
        for choice in self.choices:
            choice.sink = None

    def fail(self, refusal: Refusal) -> None:
        """End with an error: as the status if nothing was sent, else as a last event."""
        if self.closed:
            return
        self.close()
        if self._stream is None:
            self.request.respond(refusal.response(self.spec.headers))
        else:
            self._stream.end(self.writer.failure(refusal, self.choices))
        self._done(self)

    def answer_at_once(self) -> None:
        """Send everything now, without the engine; for answers that have no words."""
        self.closed = True
        if self.spec.streaming:
            writer = self.writer
            events = [writer.begin(choice) + writer.finish(choice) for choice in self.choices]
            self.request.stream(headers=self.spec.headers).end(b"".join(events) + writer.close(self.choices))
        else:
            self.request.respond(Response(200, self.writer.whole(self.choices), headers=self.spec.headers))

    def cut(self) -> None:
        """Break the connection in the middle of the answer."""
        self._open_stream().abort()


def usage(choices: Sequence[Choice], *, details: bool) -> dict[str, Any]:
    """Return the token counts: every distinct prompt once, every choice's output."""
    if len(choices) == 1:
        (only,) = choices
        prompt_tokens, output_tokens, cached = only.prompt.count, len(only.answer.pieces), only.cached_tokens
    else:
        prompts = {id(choice.prompt): choice for choice in choices}.values()
        prompt_tokens = sum(choice.prompt.count for choice in prompts)
        output_tokens = sum(len(choice.answer.pieces) for choice in choices)
        cached = sum(choice.cached_tokens for choice in prompts)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached} if details else None,
    }

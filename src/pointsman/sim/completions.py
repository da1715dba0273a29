"""The shape of /v1/completions, streamed and whole."""

from typing import Any

from pointsman.sim.chat import DONE
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs import Choice, Job, encode


def logprobs_of(pieces: list[str], *, start: int, offset: int, top: int) -> dict[str, Any]:
    """Return made-up log probabilities in the layout of text completions."""
    main = [-1.0 - 0.1 * ((start + i) % 3) for i in range(len(pieces))]
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    alternatives = [
        {piece if j == 0 else f"{piece}_{j}": value - 0.5 * j for j in range(max(top, 1))}
        for piece, value in zip(pieces, main, strict=True)
    ]
    return {"tokens": pieces, "token_logprobs": main, "top_logprobs": alternatives, "text_offset": offsets}


class CompletionWriter:
    """Writes text completions."""

    def __init__(self, job: Job, *, logprobs: int | None = None) -> None:
        self.job = job
        self.logprobs = logprobs
        self._events: dict[int, tuple[bytes, bytes]] = {}
        self._offsets: dict[int, int] = {}

    def _chunk(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None) -> bytes:
        job = self.job
        body = {
            "id": f"cmpl-{job.id}-0",
            "created": job.created,
            "model": job.model,
            "object": "text_completion",
            "usage": usage,
            "choices": choices,
        }
        return b"data: %b\n\n" % encode(body)

    def _text(self, choice: Choice, text: str, *, reason: str | None = None, logprobs: Any = None) -> bytes:
        shown = {"index": choice.index, "finish_reason": reason, "text": text, "logprobs": logprobs}
        return self._chunk([shown])

    def begin(self, choice: Choice) -> bytes:
        before, after = self._text(choice, "\0").split(b'"\\u0000"')
        self._events[choice.index] = before, after
        return b""

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        pieces = choice.answer.pieces[first:end]
        if self.logprobs is not None:
            return b"".join(self._with_logprobs(choice, piece, first + i) for i, piece in enumerate(pieces))
        before, after = self._events[choice.index]
        return b"".join([before + encode(piece) + after for piece in pieces])

    def _with_logprobs(self, choice: Choice, piece: str, position: int) -> bytes:
        offset = self._offsets.get(choice.index, 0)
        self._offsets[choice.index] = offset + len(piece)
        shown = logprobs_of([piece], start=position, offset=offset, top=self.logprobs or 0)
        return self._text(choice, piece, logprobs=shown)

    def finish(self, choice: Choice) -> bytes:
        return b"" if choice.finish_reason == "cache_threshold" else self._text(choice, "", reason=choice.finish_reason)

    def close(self) -> bytes:
        usage = self._chunk([], usage=self.job.usage()) if self.job.usage_wanted else b""
        return usage + DONE

    def failure(self, refusal: Refusal) -> bytes:
        return b"data: %b\n\n" % encode(refusal.document()) + DONE

    def whole(self) -> bytes:
        job = self.job
        body: dict[str, Any] = {"id": f"cmpl-{job.id}-0", "model": job.model, "object": "text_completion"}
        if job.kv_transfer is not None:
            body["kv_transfer_params"] = job.kv_transfer
        body |= {
            "created": job.created,
            "usage": job.usage(),
            "choices": [self._whole_choice(choice) for choice in job.choices],
        }
        return encode(body)

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "index": choice.index,
            "finish_reason": choice.finish_reason,
            "text": choice.text,
            "logprobs": None,
        }
        if self.logprobs is not None:
            pieces = list(choice.answer.pieces)
            shown["logprobs"] = logprobs_of(pieces, start=0, offset=0, top=self.logprobs)
        return shown

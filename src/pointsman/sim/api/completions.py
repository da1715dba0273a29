"""The shape of /v1/completions, streamed and whole."""

from itertools import accumulate
from typing import Any

from pointsman.sim.api.openai import CompletionWriter
from pointsman.sim.jobs.frames import GAP, Frame, frame
from pointsman.sim.jobs.job import Choice
from pointsman.sim.jobs.spec import Spec


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


class TextWriter(CompletionWriter):
    """Writes text completions."""

    prefix, suffix, kind, kind_streamed = "cmpl-", "-0", "text_completion", "text_completion"

    def __init__(self, spec: Spec, *, logprobs: int | None = None) -> None:
        super().__init__(spec, logprobs=logprobs)
        shown = spec.choices if logprobs is not None else ()
        self._offsets = [tuple(accumulate(map(len, each.answer.pieces), initial=0)) for each in shown]

    def _text(self, choice: Choice, text: str, *, reason: str | None = None, logprobs: Any = None) -> bytes:
        shown = {"index": choice.index, "finish_reason": reason, "text": text, "logprobs": logprobs}
        return self._chunk([shown])

    def frame(self, choice: Choice) -> Frame | None:
        return frame(self._text(choice, GAP)) if self.logprobs is None else None

    def begin(self, _choice: Choice) -> bytes:
        return b""

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        pieces = choice.answer.pieces[first:end]
        if choice.frame is None:
            return b"".join(self._with_logprobs(choice, piece, first + i) for i, piece in enumerate(pieces))
        return choice.frame.around(pieces)

    def _with_logprobs(self, choice: Choice, piece: str, position: int) -> bytes:
        offset = self._offsets[choice.index][position]
        shown = logprobs_of([piece], start=position, offset=offset, top=self.logprobs or 0)
        return self._text(choice, piece, logprobs=shown)

    def finish(self, choice: Choice) -> bytes:
        return self._text(choice, "", reason=choice.finish_reason)

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

"""The shape of /v1/chat/completions, streamed and whole."""

from typing import Any

from pointsman.sim.api.openai import CompletionWriter
from pointsman.sim.jobs.frames import GAP, Frame, frame
from pointsman.sim.jobs.job import Choice


def logprob(token: str, position: int, *, top: int) -> dict[str, Any]:
    """Return made-up log probabilities of one token, the same for the same place."""
    main = -1.0 - 0.1 * (position % 3)
    names = [token, *(f"{token}_{j}" for j in range(1, top))][: max(top, 0)]
    return {
        **_probability(token, main),
        "top_logprobs": [_probability(name, main - 0.5 * j) for j, name in enumerate(names)],
    }


def _probability(token: str, value: float) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode("utf-8", "replace"))}


class ChatWriter(CompletionWriter):
    """Writes chat completions."""

    prefix, kind, kind_streamed = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def _delta(self, choice: Choice, delta: Any, *, reason: str | None = None) -> bytes:
        return self._chunk([{"index": choice.index, "finish_reason": reason, "delta": delta}])

    def frame(self, choice: Choice) -> Frame | None:
        return None if self.logprobs is not None or choice.calls else frame(self._delta(choice, {"content": GAP}))

    def begin(self, choice: Choice) -> bytes:
        if choice.finish_reason == "cache_threshold":
            return b""  # nobody speaks
        return self._delta(choice, {"role": "assistant"})

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        if choice.calls:
            return self._call_tokens(choice, first, end)
        pieces = choice.answer.pieces[first:end]
        if choice.frame is None:
            return b"".join(self._with_logprob(choice, piece, first + i) for i, piece in enumerate(pieces))
        return choice.frame.around(pieces)

    def _with_logprob(self, choice: Choice, piece: str, position: int) -> bytes:
        shown = {"content": [logprob(piece, position, top=self.logprobs or 0)]}
        body = {"index": choice.index, "finish_reason": None, "delta": {"content": piece}, "logprobs": shown}
        return self._chunk([body])

    def _call_tokens(self, choice: Choice, first: int, end: int) -> bytes:
        """Return argument tokens; every event repeats which call it belongs to, the first one names the function."""
        events = []
        for position in range(first, end):
            call, piece, opening = choice.calls[position]
            if piece is None:
                continue
            function = {"name": call.name if opening else None, "arguments": piece}
            shown = {"id": call.id, "type": "function", "index": call.index, "function": function}
            reason = "tool_calls" if position == choice.last - 1 else None
            events.append(self._delta(choice, {"tool_calls": [shown]}, reason=reason))
        return b"".join(events)

    def finish(self, choice: Choice) -> bytes:
        if choice.calls:
            return b""
        return self._delta(choice, {}, reason=choice.finish_reason)

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        if choice.calls:
            message["tool_calls"] = [call.document() for call, _, opening in choice.calls if opening]
        else:
            message["content"] = choice.text
        shown: dict[str, Any] = {
            "index": choice.index,
            "finish_reason": choice.finish_reason,
            "message": message,
        }
        if self.logprobs is not None and not choice.calls:
            pieces = choice.answer.pieces
            shown["logprobs"] = {"content": [logprob(piece, i, top=self.logprobs) for i, piece in enumerate(pieces)]}
        return shown

"""The shape of /v1/responses: named events when streamed, one document otherwise.

Choices other than the first do not exist in this API. The closing event always carries the usage. What was asked for
comes back with the answer. One that comes to its limit is incomplete, and says so.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.core.lines import cut
from pointsman.sim.api.chat import logprob
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import GAP, Frame, encode, frame, named_event
from pointsman.sim.jobs.job import Choice, usage
from pointsman.sim.jobs.spec import Spec
from pointsman.sim.text.bodies import Json, Message, Responses
from pointsman.sim.text.prompts import content_text

ITEMS = "write message, function_call, function_call_output or reasoning"
CONTENTS = "write input_text, output_text, refusal, input_image or input_audio"
INCOMPLETE = "incomplete"
LOGPROBS = "message.output_text.logprobs"


def messages_of(given: str | Sequence[Json], *, instructions: str | None) -> tuple[list[Message], bool]:
    """Return the conversation in an input, and whether it holds a tool's result."""
    found = [Message(role="system", content=instructions)] if instructions else []
    if isinstance(given, str):
        return [*found, Message(role="user", content=given)], False
    answered = False
    for item in given:
        match item.get("type"):
            case None | "" | "message":
                found.append(Message(role=str(item.get("role") or "user"), content=_content(item.get("content"))))
            case "function_call":
                call = {"function": {"name": str(item.get("name") or ""), "arguments": item.get("arguments") or ""}}
                found.append(Message(role="assistant", tool_calls=[call]))
            case "function_call_output":
                answered = True
                identity = str(item.get("call_id") or "")
                found.append(Message(role="tool", content=content_text(item.get("output")), tool_call_id=identity))
            case "reasoning":
                pass  # clients send back what a model thought; it is no part of the prompt
            case other:
                raise Refusal(400, f"input holds an item of type {cut(str(other), most=50)!r}: {ITEMS}", param="input")
    if not found:
        raise Refusal(400, "input must hold something to answer to", param="input")
    return found, answered


def _content(given: Any) -> str | list[Json] | None:
    """Return a message's content in the parts of a chat."""
    if not isinstance(given, list):
        if not isinstance(given, str | None):
            raise Refusal(400, "input holds a message whose content is no text and no list", param="input")
        return given
    return [_part(part) for part in given]


def _part(part: Any) -> Json:
    kind = part.get("type") if isinstance(part, dict) else part
    match kind:
        case None | "" | "input_text" | "output_text" | "refusal" if isinstance(part, dict):
            return {"type": "text", "text": part.get("refusal") if kind == "refusal" else part.get("text")}
        case "input_image":
            return {"type": "image_url", "image_url": part.get("image_url") or ""}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio") or part}
    raise Refusal(400, f"input holds content of type {cut(str(kind), most=50)!r}: {CONTENTS}", param="input")


def logprobs_wanted(read: Responses) -> int | None:
    """Return how many alternatives to show per token, None where logprobs were not asked for."""
    return (read.top_logprobs or 0) if LOGPROBS in (read.include or ()) else None


def _ending(choice: Choice) -> str:
    return INCOMPLETE if choice.finish_reason == "length" else "completed"


class ResponsesWriter:
    """Writes responses."""

    def __init__(self, spec: Spec, *, read: Responses) -> None:
        self.spec = spec
        self.logprobs = logprobs_wanted(read)
        self._asked = {
            "instructions": read.instructions,
            "max_output_tokens": read.max_output_tokens,
            "metadata": read.metadata or {},
            "parallel_tool_calls": True if read.parallel_tool_calls is None else read.parallel_tool_calls,
            "previous_response_id": read.previous_response_id,
            "temperature": 1.0 if read.temperature is None else read.temperature,
            "text": read.text or {"format": {"type": "text"}},
            "tool_choice": read.tool_choice or "auto",
            "tools": read.tools or [],
            "top_logprobs": read.top_logprobs,
            "top_p": 1.0 if read.top_p is None else read.top_p,
        }

    def _response(self, status: str, output: list[Any], *, counts: dict[str, Any] | None = None) -> dict[str, Any]:
        spec = self.spec
        return {
            "id": f"resp_{spec.id}",
            "object": "response",
            "created_at": spec.created,
            "status": status,
            "model": spec.model,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == INCOMPLETE else None,
            **self._asked,
            "usage": counts,
        }

    def _completed(self, choices: Sequence[Choice]) -> dict[str, Any]:
        counts = usage(choices, details=self.spec.usage_details)
        shown = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"] or {"cached_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        status = _ending(choices[0])
        return self._response(status, self._items(choices[0], status=status), counts=shown)

    def _items(self, choice: Choice, *, status: str, empty: bool = False) -> list[dict[str, Any]]:
        """Return the output items: a function call each, or one message."""
        if choice.calls:
            return [
                {
                    "type": "function_call",
                    "id": call.id,
                    "call_id": f"call_{call.id.removeprefix('fc_')}",
                    "name": call.name,
                    "arguments": "" if empty else call.arguments,
                    "status": status,
                }
                for call, _, opening in choice.calls
                if opening
            ]
        content = [] if empty else [self._part(choice)]
        identity = {"type": "message", "id": f"msg_{self.spec.id}", "role": "assistant"}
        return [{**identity, "status": status, "content": content}]

    def _part(self, choice: Choice, *, empty: bool = False) -> dict[str, Any]:
        pieces = () if empty else choice.answer.pieces
        text = "".join(pieces)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs(pieces)}

    def _logprobs(self, pieces: Sequence[str], *, first: int = 0) -> list[dict[str, Any]]:
        if self.logprobs is None:
            return []
        return [logprob(piece, first + i, top=self.logprobs) for i, piece in enumerate(pieces)]

    def frame(self, choice: Choice) -> Frame | None:
        plain = self.logprobs is None and not choice.calls
        return frame(self._delta(GAP, logprobs=[])) if plain else None

    def begin(self, choice: Choice) -> bytes:
        started = {"response": self._response("in_progress", [])}
        events = [named_event("response.created", started), named_event("response.in_progress", started)]
        item = self._items(choice, status="in_progress", empty=True)[0]
        events.append(named_event("response.output_item.added", {"output_index": 0, "item": item}))
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        if not choice.calls:
            events.append(named_event("response.content_part.added", {**place, "part": self._part(choice, empty=True)}))
        return b"".join(events)

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        if choice.calls:
            shown = [(call.id, piece) for call, piece, _ in choice.calls[first:end] if piece is not None]
            name = "response.function_call_arguments.delta"
            return b"".join(
                named_event(name, {"item_id": key, "output_index": 0, "delta": piece}) for key, piece in shown
            )
        pieces = choice.answer.pieces[first:end]
        if choice.frame is not None:
            return choice.frame.around(pieces)
        logprobs = self._logprobs(pieces, first=first)
        return b"".join(self._delta(piece, logprobs=[logprobs[i]]) for i, piece in enumerate(pieces))

    def _delta(self, piece: str, *, logprobs: list[dict[str, Any]]) -> bytes:
        place = {"item_id": f"msg_{self.spec.id}", "output_index": 0, "content_index": 0}
        return named_event("response.output_text.delta", {**place, "logprobs": logprobs, "delta": piece})

    def finish(self, choice: Choice) -> bytes:
        item = self._items(choice, status=_ending(choice))[0]
        place = {"item_id": item["id"], "output_index": 0}
        if choice.calls:
            done = {**place, "name": item["name"], "arguments": item["arguments"]}
            events = [named_event("response.function_call_arguments.done", done)]
        else:
            shown = self._part(choice)
            text = {**place, "content_index": 0, "text": shown["text"], "logprobs": shown["logprobs"]}
            part = {**place, "content_index": 0, "part": shown}
            events = [
                named_event("response.output_text.done", text),
                named_event("response.content_part.done", part),
            ]
        events.append(named_event("response.output_item.done", {"output_index": 0, "item": item}))
        return b"".join(events)

    def close(self, choices: Sequence[Choice]) -> bytes:
        return named_event(f"response.{_ending(choices[0])}", {"response": self._completed(choices)})

    def failure(self, refusal: Refusal, _choices: Sequence[Choice]) -> bytes:
        return named_event("error", {"code": str(refusal.status), "message": str(refusal), "param": refusal.param})

    def whole(self, choices: Sequence[Choice]) -> bytes:
        return encode(self._completed(choices))

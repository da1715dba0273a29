"""The shape of /v1/responses: named events when streamed, one document otherwise.

Choices other than the first do not exist in this API. The closing event always carries the usage. What was asked for
comes back with the answer; `text.format` does so too, but the text itself is made up as ever.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.sim.api.chat import logprob
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import GAP, Frame, encode, frame, named_event
from pointsman.sim.jobs.job import Choice, usage
from pointsman.sim.jobs.spec import Spec
from pointsman.sim.text.bodies import Json, Message, Responses
from pointsman.sim.text.prompts import content_text

FORMATS = ("text", "json_object", "json_schema")
LOGPROBS = "message.output_text.logprobs"


def messages_of(given: str | Sequence[Json], *, instructions: str | None) -> tuple[list[Message], bool]:
    """Return the conversation in an input, and whether it holds a tool's result."""
    found = [Message(role="system", content=instructions)] if instructions else []
    if isinstance(given, str):
        return [*found, Message(role="user", content=given)], False
    answered = False
    for item in given:
        match item.get("type"):
            case "function_call":
                found.append(Message(role="assistant", content=f"[{item.get('name')}({item.get('arguments')})]"))
            case "function_call_output":
                answered = True
                found.append(Message(role="tool", content=content_text(item.get("output"))))
            case _:
                content = item.get("content")
                if not isinstance(content, str | list | None):
                    raise Refusal(400, "input holds a message whose content is no text and no list", param="input")
                found.append(Message(role=str(item.get("role") or "user"), content=content))
    return found, answered


def check_format(text: Json | None) -> None:
    """Raise Refusal 400 if `text.format` is none that the API knows."""
    wanted = (text or {}).get("format")
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in FORMATS:
        raise Refusal(400, f"text.format must have one of the types {', '.join(FORMATS)}", param="text.format")
    if kind == "json_schema" and not (isinstance(wanted.get("name"), str) and isinstance(wanted.get("schema"), dict)):
        raise Refusal(400, "text.format of type json_schema needs a name and a schema", param="text.format")


def logprobs_wanted(read: Responses) -> int | None:
    """Return how many alternatives to show per token, None where logprobs were not asked for."""
    return (read.top_logprobs or 0) if LOGPROBS in (read.include or ()) else None


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
            "incomplete_details": None,
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
        return self._response("completed", self._items(choices[0], status="completed"), counts=shown)

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
        item = self._items(choice, status="completed")[0]
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
        return named_event("response.completed", {"response": self._completed(choices)})

    def failure(self, refusal: Refusal, _choices: Sequence[Choice]) -> bytes:
        return named_event("error", {"code": str(refusal.status), "message": str(refusal), "param": refusal.param})

    def whole(self, choices: Sequence[Choice]) -> bytes:
        return encode(self._completed(choices))

"""The shape of /v1/responses: named events when streamed, one document otherwise.

Choices other than the first do not exist in this API. The closing event always carries the usage.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.sim.bodies import Json, Message
from pointsman.sim.failures import Refusal
from pointsman.sim.frames import GAP, encode, frame, named_event
from pointsman.sim.jobs import Choice, Job
from pointsman.sim.prompts import content_text


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


class ResponsesWriter:
    """Writes responses."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        job = self.job
        done = status == "completed"
        return {
            "id": f"resp_{job.id}",
            "object": "response",
            "created_at": job.created,
            "status": status,
            "model": job.model,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": self._usage() if done else None,
        }

    def _usage(self) -> dict[str, Any]:
        usage = self.job.usage()
        cached = usage["prompt_tokens_details"] or {"cached_tokens": 0}
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": cached,
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

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
        content = [] if empty else [self._part(choice.text)]
        identity = {"type": "message", "id": f"msg_{self.job.id}", "role": "assistant"}
        return [{**identity, "status": status, "content": content}]

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def begin(self, choice: Choice) -> bytes:
        started = {"response": self._response("in_progress", [])}
        events = [named_event("response.created", started), named_event("response.in_progress", started)]
        item = self._items(choice, status="in_progress", empty=True)[0]
        events.append(named_event("response.output_item.added", {"output_index": 0, "item": item}))
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        if not choice.calls:
            events.append(named_event("response.content_part.added", {**place, "part": self._part("")}))
            choice.frame = frame(named_event("response.output_text.delta", {**place, "logprobs": [], "delta": GAP}))
        return b"".join(events)

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        if choice.calls:
            shown = [(call.id, piece) for call, piece, _ in choice.calls[first:end] if piece is not None]
            name = "response.function_call_arguments.delta"
            return b"".join(
                named_event(name, {"item_id": key, "output_index": 0, "delta": piece}) for key, piece in shown
            )
        assert choice.frame is not None
        return choice.frame.around(choice.answer.pieces[first:end])

    def finish(self, choice: Choice) -> bytes:
        item = self._items(choice, status="completed")[0]
        place = {"item_id": item["id"], "output_index": 0}
        if choice.calls:
            done = {**place, "name": item["name"], "arguments": item["arguments"]}
            events = [named_event("response.function_call_arguments.done", done)]
        else:
            text = {**place, "content_index": 0, "text": choice.text, "logprobs": []}
            part = {**place, "content_index": 0, "part": self._part(choice.text)}
            events = [
                named_event("response.output_text.done", text),
                named_event("response.content_part.done", part),
            ]
        events.append(named_event("response.output_item.done", {"output_index": 0, "item": item}))
        return b"".join(events)

    def close(self) -> bytes:
        output = self._items(self.job.choices[0], status="completed")
        return named_event("response.completed", {"response": self._response("completed", output)})

    def failure(self, refusal: Refusal) -> bytes:
        return named_event("error", {"code": str(refusal.status), "message": str(refusal), "param": refusal.param})

    def whole(self) -> bytes:
        return encode(self._response("completed", self._items(self.job.choices[0], status="completed")))

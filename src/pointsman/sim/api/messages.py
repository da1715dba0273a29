"""The shape of /v1/messages, Anthropic's API: named events when streamed, one document otherwise."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import GAP, Frame, encode, frame, named_event
from pointsman.sim.jobs.job import Choice, usage
from pointsman.sim.jobs.spec import Spec
from pointsman.sim.text.bodies import Anthropic, CountTokens, Json, Message
from pointsman.sim.text.prompts import content_text

STOP = {"tool_calls": "tool_use", "length": "max_tokens", "cache_threshold": "max_tokens"}


def conversation(read: Anthropic | CountTokens) -> list[Message]:
    """Return the messages as a chat: the system text first, calls of tools as calls, their results as messages."""
    system = content_text(read.system)
    found = [Message(role="system", content=system)] if system else []
    for message in read.messages:
        if isinstance(message.content, list):
            found += _converted(message.role, message.content)
        else:
            found.append(Message(role=message.role, content=message.content))
    return found


def _converted(role: str | None, content: list[Json]) -> list[Message]:
    said: list[Json] = []
    calls: list[Json] = []
    results: list[Message] = []
    for part in content:
        match part.get("type"):
            case "text":
                said.append(part)
            case "image":
                said.append({"type": "image_url", "image_url": {"url": _image_url(part.get("source"))}})
            case "tool_use":
                calls.append(
                    {"function": {"name": str(part.get("name") or ""), "arguments": _as_go(part.get("input"))}}
                )
            case "tool_result":
                answered = str(part.get("tool_use_id") or "")
                results.append(Message(role="tool", content=content_text(part.get("content")), tool_call_id=answered))
    spoken = [Message(role=role, content=said or None, tool_calls=calls or None)] if said or calls else []
    return [*spoken, *results]


def _image_url(source: Any) -> str:
    if not isinstance(source, dict):
        raise Refusal(400, "messages holds an image block without a source", param="messages")
    if source.get("type") == "base64":
        return f"data:{source.get('media_type') or ''};base64,{source.get('data') or ''}"
    return str(source.get("url") or "")


def _as_go(given: Any) -> str:
    """Return arguments as Go writes them, so that prompts have the same tokens: sorted, with marks of HTML escaped."""
    text = msgspec.json.encode({} if given is None else given, order="sorted").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _reason(choice: Choice) -> str:
    return "stop_sequence" if choice.answer.stop is not None else STOP.get(choice.finish_reason, "end_turn")


class MessagesWriter:
    """Writes messages."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def _usage(self, choice: Choice, *, output: int) -> dict[str, Any]:
        counts = usage([choice], details=self.spec.usage_details)
        cached = (counts["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        return {
            "input_tokens": counts["prompt_tokens"],
            "output_tokens": output,
            "cache_read_input_tokens": cached,
        }

    def _message(self, choice: Choice, content: list[Any], *, reason: str | None, output: int) -> dict[str, Any]:
        return {
            "id": f"msg_{self.spec.id}",
            "type": "message",
            "role": "assistant",
            "model": self.spec.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": choice.answer.stop if reason else None,
            "usage": self._usage(choice, output=output),
        }

    def frame(self, choice: Choice) -> Frame | None:
        delta = {"index": 0, "delta": {"type": "text_delta", "text": GAP}}
        return None if choice.calls else frame(named_event("content_block_delta", delta))

    def begin(self, choice: Choice) -> bytes:
        start = named_event("message_start", {"message": self._message(choice, [], reason=None, output=0)})
        if choice.calls:
            return start + named_event("ping", {})
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return start + named_event("content_block_start", block) + named_event("ping", {})

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        if choice.calls:
            return self._call_tokens(choice, first, end)
        assert choice.frame is not None
        return choice.frame.around(choice.answer.pieces[first:end])

    def _call_tokens(self, choice: Choice, first: int, end: int) -> bytes:
        events = []
        for call, piece, opening in choice.calls[first:end]:
            if piece is None:
                continue
            if opening:
                if call.index:
                    events.append(named_event("content_block_stop", {"index": call.index - 1}))
                block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
                shown = {"index": call.index, "content_block": block}
                events.append(named_event("content_block_start", shown))
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append(named_event("content_block_delta", {"index": call.index, "delta": delta}))
        return b"".join(events)

    def finish(self, choice: Choice) -> bytes:
        last = choice.calls[-1][0].index if choice.calls else 0
        counts = self._usage(choice, output=len(choice.answer.pieces))
        ending = {"stop_reason": _reason(choice), "stop_sequence": choice.answer.stop}
        delta = {"delta": ending, "usage": counts}
        return named_event("content_block_stop", {"index": last}) + named_event("message_delta", delta)

    def close(self, _choices: Sequence[Choice]) -> bytes:
        return named_event("message_stop", {})

    def failure(self, refusal: Refusal, _choices: Sequence[Choice]) -> bytes:
        return named_event("error", {"error": {"type": "api_error", "message": str(refusal)}})

    def whole(self, choices: Sequence[Choice]) -> bytes:
        choice = choices[0]
        if choice.calls:
            content: list[Any] = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.json.decode(call.arguments)}
                for call, _, opening in choice.calls
                if opening
            ]
        else:
            content = [{"type": "text", "text": choice.text}]
        return encode(self._message(choice, content, reason=_reason(choice), output=len(choice.answer.pieces)))

"""From a request body to prompts: flattened text or token ids, counted once, hashed only where someone needs it.

Ids are computed lazily, because most requests need nothing but the count, and counting is ten times cheaper.
"""

from collections.abc import Sequence
from typing import Any

from pointsman.sim.failures import Refusal
from pointsman.sim.text import hashing, tokens
from pointsman.sim.text.bodies import Message

MOST_PROMPTS = 10_000  # in one request


class Prompt:
    """One prompt: its text, and what an echo of it says."""

    __slots__ = ("_ids", "count", "echo", "lead", "media", "text")

    def __init__(self, text: str, *, echo: str | None = None, ids: Sequence[int] | None = None) -> None:
        self.text = text
        self.echo = text if echo is None else echo
        self._ids = ids
        self.count = tokens.count(text) if ids is None else len(ids)
        self.media: list[str] = []  # hashes of images and the like
        self.lead = ""  # what stands between this prompt and its answer when the next turn holds both

    @property
    def ids(self) -> Sequence[int]:
        """Its token ids."""
        if self._ids is None:
            self._ids = tokens.encode(self.text)
        return self._ids

    def keys(self, *, start: int, block_size: int) -> list[int]:
        """Return the keys of its full blocks."""
        return hashing.chain(self.ids, start=start, block_size=block_size)


def from_ids(ids: Sequence[int]) -> Prompt:
    """Return a prompt given as token ids; its echo is the list of numbers.

    Raises Refusal when an id is not a token id.
    """
    if not ids:
        raise Refusal(400, "Either prompt or prompt_embeds must be provided and non-empty", param="prompt")
    if min(ids) < 0 or max(ids) > 0xFFFFFFFF:
        raise Refusal(400, "Token ids must be between 0 and 4294967295", param="prompt")
    return Prompt("", echo=",".join(map(str, ids)), ids=ids)


def from_field(prompt: str | Sequence[str | int | Sequence[int]], *, name: str = "prompt") -> list[Prompt]:
    """Return the prompts of a completion: a text, texts, ids, or lists of ids.

    Raises Refusal when it is empty or mixes kinds.
    """
    if not prompt:
        raise Refusal(400, f"{name} must not be empty", param=name)
    if isinstance(prompt, str):
        return [Prompt(prompt)]
    if len(prompt) > MOST_PROMPTS and not isinstance(prompt[0], int):
        raise Refusal(400, f"{name} must hold at most {MOST_PROMPTS} prompts", param=name)
    if all(isinstance(item, str) for item in prompt):
        if not all(prompt):
            raise Refusal(400, f"{name} must not contain an empty text", param=name)
        return [Prompt(str(item)) for item in prompt]
    if all(isinstance(item, int) for item in prompt):
        return [from_ids([item for item in prompt if isinstance(item, int)])]
    if all(isinstance(item, list) for item in prompt):
        return [from_ids(item) for item in prompt if isinstance(item, list)]
    raise Refusal(400, f"{name} must be a text, texts, token ids, or lists of token ids", param=name)


def from_messages(messages: Sequence[Message]) -> Prompt:
    """Return the one prompt of a chat, flattened as llm-d-inference-sim does; its echo is the last message."""
    if not messages:
        raise Refusal(400, "messages must not be empty", param="messages")
    media: list[str] = []
    parts: list[str] = []
    text = ""
    for message in messages:
        calls = "".join(_call_text(call) for call in message.tool_calls or ())
        text = content_text(message.content, media=media) + calls
        answered = f"({message.tool_call_id})" if message.tool_call_id else ""
        parts.append(f"### {message.role or ''}{answered}: {text}\n")
    prompt = Prompt("".join(parts), echo=text)
    prompt.media = media
    prompt.lead = "### assistant: "
    return prompt


def content_text(content: Any, *, media: list[str] | None = None) -> str:
    """Return the text of a message's content, whatever a client put there, a line for each part.

    Media are noted in `media` by their hashes.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return str(content)
    found = [_part_text(part, media) for part in content if isinstance(part, dict)]
    return "\n".join([text for text in found if text is not None])


_MEDIA = {"image_url": ("image", "img"), "audio_url": ("audio", "audio"), "video_url": ("video", "video")}


def _part_text(part: dict[str, Any], media: list[str] | None) -> str | None:
    kind = part.get("type")
    if kind in {"text", "input_text", "output_text"}:
        return str(part.get("text") or "")
    held = part.get(kind) if isinstance(kind, str) else None
    if isinstance(held, str):
        held = {"url": held}
    if not isinstance(held, dict):
        return None
    if kind == "input_audio":
        _note_media("audio", held.get("data"), media)
        return f"input_audio: {held.get('format') or ''}"
    if kind in _MEDIA:
        word, short = _MEDIA[kind]
        _note_media(short, held.get("url"), media)
        return f"{word}: {held.get('url') or ''}"
    return None


def _note_media(short: str, identity: Any, media: list[str] | None) -> None:
    if media is not None and isinstance(identity, str) and identity:
        index = sum(name.startswith(f"sim_{short}_") for name in media)
        media.append(f"sim_{short}_{index}_{tokens.identify(identity):x}")


def _call_text(call: dict[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, dict) or function.get("name") is None:
        return ""
    return call_text(str(function["name"]), str(function.get("arguments") or ""))


def call_text(name: str, arguments: str) -> str:
    """Return a tool call as it stands in a prompt."""
    return f"[{name}({arguments})]"

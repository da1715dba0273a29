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

    __slots__ = ("_ids", "count", "echo", "media", "text")

    def __init__(self, text: str, *, echo: str | None = None, ids: Sequence[int] | None = None) -> None:
        self.text = text
        self.echo = text if echo is None else echo
        self._ids = ids
        self.count = tokens.count(text) if ids is None else len(ids)
        self.media: list[str] = []  # hashes of images and the like

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
    if isinstance(prompt, str):
        return [Prompt(prompt)]
    if not prompt:
        raise Refusal(400, f"{name} must not be empty", param=name)
    if len(prompt) > MOST_PROMPTS and not isinstance(prompt[0], int):
        raise Refusal(400, f"{name} must hold at most {MOST_PROMPTS} prompts", param=name)
    if all(isinstance(item, str) for item in prompt):
        return [Prompt(str(item)) for item in prompt]
    if all(isinstance(item, int) for item in prompt):
        return [from_ids([item for item in prompt if isinstance(item, int)])]
    if all(isinstance(item, list) for item in prompt):
        return [from_ids(item) for item in prompt if isinstance(item, list)]
    raise Refusal(400, f"{name} must be a text, texts, token ids, or lists of token ids", param=name)


def from_messages(messages: Sequence[Message]) -> Prompt:
    """Return the one prompt of a chat; its echo is the last message's text."""
    if not messages:
        raise Refusal(400, "messages must not be empty", param="messages")
    media: list[str] = []
    parts: list[str] = []
    text = ""
    for message in messages:
        text = content_text(message.content, media=media)
        calls = "".join(_call_text(call) for call in message.tool_calls or ())
        parts.append(f"### {message.role or ''}: {text}{calls}\n")
    prompt = Prompt("".join(parts), echo=text)
    prompt.media = media
    return prompt


def content_text(content: Any, *, media: list[str] | None = None) -> str:
    """Return the text of a message's content, whatever a client put there; other parts are noted in `media`."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return str(content)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in {"text", "input_text", "output_text"}:
            texts.append(str(part.get("text") or ""))
        elif media is not None and isinstance(kind, str):
            _note_media(part, kind, media)
    return "".join(texts)


def _note_media(part: dict[str, Any], kind: str, media: list[str]) -> None:
    short = {"image_url": "img", "input_image": "img", "image": "img", "input_audio": "audio", "video_url": "video"}
    if kind in short:
        media.append(f"sim_{short[kind]}_{len(media)}_{tokens.identify(str(part)):08x}")


def _call_text(call: dict[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, dict):
        return ""
    return f"[{function.get('name', '')}({function.get('arguments', '')})]"

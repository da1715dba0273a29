"""A request's body, read once and only as far as someone needs it.

msgspec checks the whole document and takes out the few members that matter; the rest is skipped, not built. What it
refuses although Go's decoder would take it (text that is not UTF-8, lone surrogates, very deep nesting, numbers that
nothing can hold) goes through slower readers; what nobody takes is a 400 in the words of `jsonscan`. Types are lenient:
a number where text belongs is no error of ours, it only gives no prompt, and a limit that is no count is none; the
model server will say what it thinks of it.

Token ids in a member `tokens` beside the prompt are for us, from llm-d's coordinator: they are the prompt, nobody is
asked for others, and the model server does not see them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pointsman.core.numbers import bounded_int, is_count
from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.jsonscan import NotJson, drop_member, json_string, scan_members, splice_member, top_level_kind
from pointsman.epp.body.media import conversation_items, feature_items
from pointsman.epp.body.prompts import completion_text, conversation_text, count_tokens, hash_chain, token_bytes
from pointsman.epp.request.estimate import Estimates, Placeholders
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import MediaItem, Needs, Prompt, Rendered
from pointsman.wire.protobuf import Data


class _Members(msgspec.Struct, gc=False):
    """The members of all APIs that we read, as they come; whatever else there is, is skipped."""

    model: Any = None
    prompt: Any = None
    messages: Any = None
    input: Any = None
    instructions: Any = None
    system: Any = None
    text: Any = None
    token_ids: Any = None
    tokens: Any = None
    input_ids: Any = None
    tools: msgspec.Raw = msgspec.Raw(b"")
    features: msgspec.Raw = msgspec.Raw(b"")
    cache_salt: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    sampling_params: Any = None


class _ModelOnly(msgspec.Struct, gc=False):
    model: Any = None


_RAW = frozenset(("tools", "features"))
_read_members: Callable[[Data], _Members] = msgspec.json.Decoder(_Members).decode
_read_model: Callable[[Data], _ModelOnly] = msgspec.json.Decoder(_ModelOnly).decode


class BodyReading:
    """A body that was read as far as `needs` asks for; its prompt is worked out when it is asked for.

    Raises BadRequest when it is not a JSON object.
    """

    __slots__ = ("_ahead", "_given", "_media", "_members", "_needs", "_said", "body", "model")

    def __init__(
        self, body: Data, *, needs: Needs, ahead: Ahead | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._needs = needs
        self._ahead = ahead
        self._media = Placeholders(needs.estimates or Estimates(), headers=headers or {})
        self._said: tuple[bytes, bool] | None = None
        self._members: _Members | None = None
        self.body = body
        if needs.prompt:
            self._members = _decode(body, _read_members, _Members)
        few: _ModelOnly | _Members = self._members or _decode(body, _read_model, _ModelOnly)
        self.model = _str(few.model)
        self._given = _given_tokens(self._members) if self.has_prompt else b""
        if self._given:
            self.body = drop_member(bytes(body), "tokens")

    @property
    def has_prompt(self) -> bool:
        """Whether it has what a completion begins with."""
        members = self._members
        return members is not None and not (members.messages is None and members.prompt is None)

    @property
    def has_tokens(self) -> bool:
        """Whether there are tokens in the place of text, or beside it."""
        if self._given:
            return True
        prompt = self._members.prompt if self._members is not None else None
        return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int | list)

    @property
    def multimodal(self) -> bool:
        """Whether there is an image, a video or sound in it."""
        return self._text()[1]

    def naming(self, model: str) -> bytes:
        """Return the body asking for a model, and otherwise as the client wrote it."""
        body = bytes(self.body)
        return body if self.model == model else splice_member(body, "model", json_string(model))

    def prompt(self, rendered: Rendered | None = None) -> Prompt | None:
        """Return the prompt, by the tokens of a tokenizer service where it gave some; None when nobody wants it."""
        members, needs = self._members, self._needs
        if members is None:
            return None
        text, multimodal = self._text()
        known = self._ahead.agrees(text) if self._ahead is not None else None
        tokens = self._given or (rendered.tokens if rendered is not None else b"")
        if tokens:
            text, known = tokens, None
        blocks = (
            hash_chain(
                text,
                model=self.model,
                salt=_str(members.cache_salt),
                block_tokens=needs.block_tokens,
                max_blocks=needs.max_blocks,
                known=known,
            )
            if needs.block_tokens and text
            else ()
        )
        return Prompt(
            tokens=count_tokens(text) + (0 if tokens else self._media.uncounted),
            block_tokens=needs.block_tokens,
            blocks=blocks,
            multimodal=multimodal,
            items=((rendered and rendered.items) or _items(members)) if needs.media else (),
            max_output_tokens=_most_output(members),
        )

    def _text(self) -> tuple[bytes, bool]:
        if self._said is None:
            self._said = _text(self._members, self._media) if self._members is not None else (b"", False)
        return self._said


def _decode(body: Data, fast: Callable[[Data], Any], kind: type[Any]) -> Any:
    try:
        return fast(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the first also when it is JSON but no object
        return _decode_slowly(bytes(body), kind)


def _decode_slowly(body: bytes, kind: type[Any]) -> Any:
    """Read what the fast parser would not take; refuse what is not JSON."""
    try:
        members = scan_members(body)
    except NotJson as error:
        raise BadRequest(f"error unmarshaling request bodyMap: {error}") from None
    _refuse_kind(body)
    found: dict[str, Any] = {}
    for member in members:
        if member.key in kind.__struct_fields__ and member.key not in _RAW:
            text = body[member.start : member.stop].decode("utf-8", "replace")
            try:
                value = json.loads(text, parse_int=bounded_int)
            except RecursionError:
                continue  # deeper than any prompt: nothing that we could read
            found[member.key] = _whole(value) if isinstance(value, str) else value
    return kind(**found)


def _whole(text: str) -> str:
    """Return a text with U+FFFD for every half of a surrogate pair, as Go reads it: the half alone has no bytes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refuse_kind(body: bytes) -> None:
    kind = top_level_kind(body)
    if kind not in {"object", "null"}:
        why = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        raise BadRequest(f"error unmarshaling request bodyMap: {why}")


def _text(members: _Members, media: Placeholders) -> tuple[bytes, bool]:
    """Return the prompt's bytes, whichever API the body is for."""
    tools = bytes(members.tools).decode("utf-8", "replace")
    if members.messages is not None:
        return conversation_text(members.messages, media=media, before=(tools, *_texts(members.system)))
    if members.prompt is not None:
        return completion_text(members.prompt), False
    if members.input is not None:
        before = (tools, *_texts(members.instructions))
        if isinstance(members.input, list) and any(isinstance(each, dict) for each in members.input):
            return conversation_text(members.input, media=media, before=before)
        return "".join(before).encode("utf-8", "replace") + completion_text(members.input), False
    for ids in (members.token_ids, members.input_ids):
        if isinstance(ids, list):
            return token_bytes(ids), False
    return completion_text(members.text), False


def _given_tokens(members: _Members | None) -> bytes:
    given = members.tokens if members is not None else None
    return token_bytes(given) if isinstance(given, list) else b""


def _items(members: _Members) -> list[MediaItem]:
    features = bytes(members.features)
    return feature_items(features) if features else conversation_items(members.messages or members.input)


def _texts(value: Any) -> list[str]:
    """Return the texts of a string, or of a list of text blocks."""
    if isinstance(value, str):
        return [value]
    blocks = value if isinstance(value, list) else ()
    return [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]


def _most_output(members: _Members) -> int | None:
    sampling = members.sampling_params if isinstance(members.sampling_params, dict) else {}
    for value in (
        members.max_completion_tokens,
        members.max_tokens,
        members.max_output_tokens,
        sampling.get("max_tokens", sampling.get("max_new_tokens")),
    ):
        if is_count(value):
            return value
    return None


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""

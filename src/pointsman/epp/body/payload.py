"""A request's body, read once and only as far as someone needs it.

msgspec checks the whole document and takes out the few members that matter; the rest is skipped, not built. What it
refuses although Go's decoder would take it (text that is not UTF-8, lone surrogates, very deep nesting, numbers that
nothing can hold) goes through slower readers; what nobody takes is a 400 in the words of `jsonscan`. Types are lenient:
a number where text belongs is no error of ours, it only gives no prompt, and a limit that is no count is none; the
model server will say what it thinks of it.

Tokens in a member `tokens` beside the prompt (token ids, or an object with `token_ids` and the media's `features`) are
of llm-d's coordinator: they are the prompt, and nobody is asked for others. They are passed on like the rest.

A prompt's blocks are hashed for the model that serves it, which after a rewrite is not the one that the client named:
what is cached is cached under that.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pointsman.core.numbers import SAFE, bounded_int, is_count, whole
from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.jsonscan import NotJson, json_string, scan_members, splice_member, top_level_kind
from pointsman.epp.body.media import conversation_items, feature_items
from pointsman.epp.body.members import Members, ModelOnly, read_members, read_model
from pointsman.epp.body.prompts import completion_texts, conversation_text, count_tokens, hash_chains, token_bytes
from pointsman.epp.request.estimate import Estimates, Placeholders
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import LengthHints, MediaItem, Needs, Prompt, Rendered
from pointsman.wire.protobuf import Data

_USUAL = Estimates()
_RAW = frozenset(("tools", "features"))


class BodyReading:
    """A body that was read as far as `needs` asks for; its prompt is worked out when it is asked for.

    Raises BadRequest when it is not a JSON object.
    """

    __slots__ = ("_ahead", "_chat", "_given", "_media", "_members", "_needs", "_said", "body", "model", "wants_model")

    def __init__(
        self,
        body: Data,
        *,
        needs: Needs,
        ahead: Ahead | None = None,
        headers: Mapping[str, str] | None = None,
        wants_model: bool = True,
        chat: bool = True,
    ) -> None:
        self._needs = needs
        self._chat = chat  # its `messages` are those of OpenAI's API
        self._ahead = ahead
        self._media = Placeholders(needs.estimates or _USUAL, headers=headers or {})
        self._said: tuple[list[bytes], bool] | None = None
        self._members: Members | None = None
        self.body = body
        self.wants_model = wants_model  # its API names a model, so one must be there
        if needs.prompt:
            self._members = _decode(body, read_members, Members)
        few: ModelOnly | Members = self._members or _decode(body, read_model, ModelOnly)
        self.model = _str(few.model)
        self._given = _given_tokens(self._members) if self.has_prompt else b""

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

    def naming(self, model: str) -> Data:
        """Return the body asking for a model, and otherwise as the client wrote it."""
        if self.model == model:
            return self.body
        return splice_member(bytes(self.body), "model", json_string(model))

    def prompt(self, rendered: Rendered | None = None, *, target: str = "") -> Prompt | None:
        """Return the prompt, by the tokens of a tokenizer service where it gave some; None when nobody wants it.

        `target` is the model that serves it, where that is another than the client's.
        """
        members, needs = self._members, self._needs
        if members is None:
            return None
        texts, multimodal = self._text()
        counted = False
        if self._given:
            texts, counted = [self._given], True
        elif rendered is not None:
            texts, counted = [rendered.tokens, *rendered.more], True
        known = self._ahead.agrees(texts[0]) if self._ahead is not None and not counted else None
        salt = _str(members.cache_salt) or _str(members.extra_key)
        chains = hash_chains(texts, model=target or self.model, salt=salt, needs=needs, known=known)
        return Prompt(
            tokens=sum(map(count_tokens, texts)) + (0 if counted else self._media.uncounted),
            block_tokens=needs.block_tokens,
            blocks=chains[0] if chains else (),
            more=chains[1:],
            multimodal=multimodal,
            items=((rendered and rendered.items) or _items(members)) if needs.media else (),
            max_output_tokens=_most_output(members),
            media_tokens=0 if counted else self._media.tokens,
            hints=_hints(members) if needs.hints and self._chat else None,
        )

    def _text(self) -> tuple[list[bytes], bool]:
        if self._said is None:
            self._said = _texts_of(self._members, self._media) if self._members is not None else ([b""], False)
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


def _texts_of(members: Members, media: Placeholders) -> tuple[list[bytes], bool]:
    """Return the bytes of each prompt, whichever API the body is for."""
    tools = bytes(members.tools).decode("utf-8", "replace")
    if members.messages is not None:
        return _one(conversation_text(members.messages, media=media, before=(tools, *_texts(members.system))))
    if members.prompt is not None:
        return completion_texts(members.prompt), False
    given = members.input if members.input is not None else members.items  # `/v1/conversations` calls them so
    if given is not None:
        before = (tools, *_texts(members.instructions))
        if isinstance(given, list) and any(isinstance(each, dict) for each in given):
            return _one(conversation_text(given, media=media, before=before))
        first, *more = completion_texts(given)
        return ["".join(before).encode("utf-8", "replace") + first, *more], False
    for ids in (members.token_ids, members.input_ids):
        if isinstance(ids, list):
            return completion_texts(ids), False
    return completion_texts(members.text), False


def _one(found: tuple[bytes, bool]) -> tuple[list[bytes], bool]:
    text, multimodal = found
    return [text], multimodal


def _given_tokens(members: Members | None) -> bytes:
    given = members.tokens if members is not None else None
    ids = given.get("token_ids") if isinstance(given, dict) else given
    return token_bytes(ids) if isinstance(ids, list) else b""


def _items(members: Members) -> list[MediaItem]:
    given: Any = members.tokens.get("features") if isinstance(members.tokens, dict) else None
    features = bytes(members.features) or given
    return feature_items(features) if features else conversation_items(members.messages or members.input)


def _texts(value: Any) -> list[str]:
    """Return the texts of a string, or of a list of text blocks."""
    if isinstance(value, str):
        return [value]
    blocks = value if isinstance(value, list) else ()
    return [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]


def _hints(members: Members) -> LengthHints | None:
    if members.messages is None:
        return None
    template = members.chat_template_kwargs if isinstance(members.chat_template_kwargs, dict) else {}
    budgets = (_count(each) for each in (template.get("thinking_budget"), members.thinking_budget))
    tools = bytes(members.tools).strip() not in {b"", b"null", b"[]"}
    thinking = _truth(template.get("enable_thinking"))
    return LengthHints(thinking=thinking, budget=next(filter(None, budgets), 0), tools=tools)


def _truth(value: Any) -> bool | None:
    """Return what clients mean by a value that should be true or false; None when nobody knows."""
    if isinstance(value, str):
        return {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}.get(value.lower())
    return bool(value) if isinstance(value, int | float) else None


def _count(value: Any) -> int:
    number = whole(value, most=SAFE) if isinstance(value, str) else value
    return number if is_count(number) else 0


def _most_output(members: Members) -> int | None:
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

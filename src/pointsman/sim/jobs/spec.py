"""What a request will be answered with, decided in full before anything is sent. Frozen.

The intake makes it, a writer gives it the shape of an API, and a job carries it out token by token.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pointsman.sim.text.answers import Answer
from pointsman.sim.text.prompts import Prompt


class ChoiceSpec(Struct, frozen=True, gc=False):  # it refers to nothing that refers back
    """One of the answers to a request."""

    prompt: Prompt
    answer: Answer
    finish_reason: str
    calls: Sequence[Any] = ()  # tool calls, where the answer is made of them

    @property
    def tokens(self) -> int:
        """How many tokens the engine makes for it: one even when there is nothing to say."""
        return max(len(self.answer.pieces), 1)


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """A whole answer."""

    id: str
    model: str
    lora: str | None
    created: int
    streaming: bool
    headers: bytes
    choices: tuple[ChoiceSpec, ...]
    max_tokens: int | None
    usage_wanted: bool
    usage_details: bool  # whether the cache is on, so that cached tokens mean something
    kv_transfer: dict[str, Any] | None
    media: dict[str, Any] | None
    hangs: bool  # it is taken on and never answered
    cut_at: int | None  # break the connection at this token of the first choice

    def without_words(self, reason: str) -> "Spec":
        """Return the same with nothing but a reason in every choice."""
        silent = tuple(ChoiceSpec(each.prompt, Answer((), reason), reason) for each in self.choices)
        return replace(self, choices=silent)

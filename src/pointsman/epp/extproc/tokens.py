"""The tokens of a response: as its `usage` says them, and as we count them. Shapes only; `usage` reads them."""

from collections.abc import Callable
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens in, tokens out, tokens that were cached; None where nobody said how many."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as the completions API has it."""
        total = {"prompt_tokens": self.prompt, "completion_tokens": self.completion}
        found: dict[str, Any] = {**total, "total_tokens": self.prompt + self.completion}
        return found if self.cached is None else {**found, "prompt_tokens_details": {"cached_tokens": self.cached}}


class SaidDetails(msgspec.Struct, gc=False):
    cached_tokens: Any = None


class SaidUsage(msgspec.Struct, gc=False):
    """`usage` of the completions, the Responses and the Messages API; `meta_info` of SGLang's."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    prompt_tokens_details: SaidDetails | None = None
    input_tokens_details: SaidDetails | None = None
    cache_read_input_tokens: Any = None
    cached_tokens: Any = None


read_said: Callable[[bytes], SaidUsage] = msgspec.json.Decoder(SaidUsage).decode

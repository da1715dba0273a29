"""The members of a body that matter to us, taken out by msgspec. Shapes only; `payload` knows what they mean."""

from collections.abc import Callable
from typing import Any

import msgspec

from pointsman.wire.protobuf import Data


class Members(msgspec.Struct, gc=False):
    """The members of all APIs that we read, as they come; whatever else there is, is skipped."""

    model: Any = None
    prompt: Any = None
    messages: Any = None
    input: Any = None
    items: Any = None
    instructions: Any = None
    system: Any = None
    text: Any = None
    token_ids: Any = None
    tokens: Any = None
    input_ids: Any = None
    tools: msgspec.Raw = msgspec.Raw(b"")
    features: msgspec.Raw = msgspec.Raw(b"")
    cache_salt: Any = None
    extra_key: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    sampling_params: Any = None
    chat_template_kwargs: Any = None
    thinking_budget: Any = None


class ModelOnly(msgspec.Struct, gc=False):
    model: Any = None


read_members: Callable[[Data], Members] = msgspec.json.Decoder(Members).decode
read_model: Callable[[Data], ModelOnly] = msgspec.json.Decoder(ModelOnly).decode

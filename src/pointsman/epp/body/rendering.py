"""A prompt in the model's own tokens: what to ask a tokenizer service, and what its answer says.

The service is vLLM's: `/render` behind a path takes the very request and returns the token ids that the model would
see. It serves one model, so that is the model it is asked for, whatever adapter the client names. A body that has
token ids already, or is for an API without `/render`, is not asked about.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pointsman.epp.body.media import feature_items
from pointsman.epp.body.parsers import path_of
from pointsman.epp.body.parts import Reading
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.body.prompts import token_bytes
from pointsman.epp.request.request import Rendered, TokenService

_CHAT, _COMPLETION = "/chat/completions", "/completions"  # the first ends like the second


class TokenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks of the service."""

    service: TokenService
    path: str
    body: bytes
    seconds: float  # to wait for the answer


class Unreadable(ValueError):
    """An answer that has no token ids."""


class _Answer(msgspec.Struct, gc=False):
    token_ids: list[int]
    features: msgspec.Raw = msgspec.Raw(b"")


_read_chat = msgspec.json.Decoder(_Answer).decode
_read_completions = msgspec.json.Decoder(list[_Answer]).decode


def question(reading: Reading, *, headers: Mapping[str, str], service: TokenService) -> TokenQuestion | None:
    """Return what to ask about a body; None where it must be estimated, or need not be."""
    path = path_of(headers)
    api = next((each for each in (_CHAT, _COMPLETION) if path.endswith(each)), None)
    if api is None or not isinstance(reading, BodyReading) or reading.has_tokens or not reading.has_prompt:
        return None
    return TokenQuestion(
        service=service,
        path=f"{service.prefix}/v1{api}/render",
        body=bytes(reading.naming(service.model)),
        seconds=service.media_seconds if reading.multimodal else service.seconds,
    )


def read_answer(asked: TokenQuestion, answer: bytes) -> Rendered:
    """Return the tokens of a prompt, or of each prompt of a request.

    Raises Unreadable.
    """
    try:
        parts: Sequence[_Answer]
        parts = [_read_chat(answer)] if asked.path.endswith(f"{_CHAT}/render") else _read_completions(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    tokens = [token_bytes(part.token_ids) for part in parts]
    if not any(tokens):
        raise Unreadable("no token ids")
    features = [bytes(part.features) for part in parts]
    items = [item for each in features if each for item in feature_items(each)]
    return Rendered(tokens=tokens[0], more=tuple(tokens[1:]), items=items)

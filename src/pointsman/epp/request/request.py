"""A request as plugins see it, and what is decided about it. Both are frozen: a policy decides, it does not act.

What the headers say is there from the start; what the body says is None until someone has read it, and nobody reads
what nobody needs: `Needs` is how a configuration says what it wants of a body before the first byte is here.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pointsman.epp.request.estimate import Estimates
from pointsman.epp.request.predictions import PredictionService

_BLOCK_BYTES = 40  # a hash in a list
_ITEM_BYTES = 120


def readable(text: str) -> str:
    """Return a header's value as text that can be written: bytes that are none become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class TokenService(msgspec.Struct, frozen=True, kw_only=True):
    """Where prompts are tokenized, and how long that may take."""

    host: str
    port: int
    prefix: str = ""  # of its paths
    model: str  # that it serves
    seconds: float = 5.0  # to wait for it; then tokens are estimated
    media_seconds: float = 30.0  # … when there are images to fetch


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy must know of a body before it can pick. Nothing at all: the pick is made on the headers."""

    body: bool = False  # the whole body must be here, whatever is read of it
    parsers: tuple[str, ...] = ()  # who may read it, by type, in order; `passthrough-parser` alone reads nothing
    prompt: bool = False  # the number of prompt tokens
    block_tokens: int = 0  # hash the prompt in blocks of this many tokens; 0 for no hashes
    max_blocks: int = 0  # … at most so many blocks; 0 for all
    media: bool = False  # the images, videos and sounds one by one
    hints: bool = False  # what says how long the answer will be
    estimates: Estimates | None = None  # how media are estimated; None as usual
    tokenizer: TokenService | None = None  # ask it for the prompt's tokens; None to estimate them
    predictor: PredictionService | None = None  # ask it how long endpoints would take; None not to


class MediaItem(msgspec.Struct, frozen=True, kw_only=True):
    """One image, video or sound; equal ones have equal hashes."""

    hash: int
    modality: str = "image"
    size: int = 1  # in tokens where they are known, else 1 for each


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as a tokenizer service sees it."""

    tokens: bytes  # four to a token
    more: Sequence[bytes] = ()  # of the further prompts of one request
    items: Sequence[MediaItem] = ()


class LengthHints(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation says about the length of its answer."""

    thinking: bool | None = None  # None where it says nothing
    budget: int = 0  # of thinking, in tokens
    tools: bool = False


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What the body says about the work that the request is."""

    tokens: int  # counted where the client or a tokenizer service gave tokens, else estimated
    block_tokens: int = 0
    blocks: Sequence[int] = ()  # the hash chain; the last block may be partial
    more: Sequence[Sequence[int]] = ()  # those of the further prompts of one request
    multimodal: bool = False  # has an image, video or audio block
    items: Sequence[MediaItem] = ()  # those, each once, when they were asked for
    max_output_tokens: int | None = None
    media_tokens: int = 0  # of the tokens, those of images, videos and sounds
    hints: LengthHints | None = None  # of a conversation, where they were asked for

    @property
    def chains(self) -> Sequence[Sequence[int]]:
        """The hash chains of all prompts; none where nobody asked for hashes."""
        return (self.blocks, *self.more) if self.more else (self.blocks,) if self.blocks else ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request on its way to a model server."""

    id: str
    headers: Mapping[str, str]
    subset: tuple[str, ...] | None = None  # the proxy's hint; None when it gave none
    has_body: bool = True
    size: int = 0  # bytes of the body
    wants_model: bool = False  # its API names a model, so one must be there
    model: str = ""  # what the client asked for
    target_model: str = ""  # what the model server is asked for; nothing until somebody has looked
    rewrite: str = ""  # the rule that says so, where one does
    priority: int = 0  # below 0: may be shed
    objective: str = ""
    fairness_id: str = "default-flow"
    prompt: Prompt | None = None
    attributes: Mapping[str, object] = {}  # what the parser found beyond this
    bulk: int = 0  # bytes of headers and subset, where they are more than a few

    @property
    def weight(self) -> int:
        """About how many bytes whoever keeps it keeps, beyond what every request takes."""
        prompt = self.prompt
        if prompt is None:
            return self.bulk
        further = sum(map(len, prompt.more)) if prompt.more else 0
        return self.bulk + _BLOCK_BYTES * (len(prompt.blocks) + further) + _ITEM_BYTES * len(prompt.items)

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.headers.get(":path", "").partition("?")[0]

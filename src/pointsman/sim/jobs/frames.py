"""The bytes of server-sent events, and the frame that all tokens of a choice share.

A token costs one encoding of its text between two prepared halves of its event.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"
GAP = "\0"  # stands in an event where the text of a token will be


class Frame(NamedTuple):
    """An event without the text of its token."""

    before: bytes
    after: bytes

    def around(self, pieces: Sequence[str]) -> bytes:
        """Return an event for each piece."""
        before, after = self
        return b"".join([before + encode(piece) + after for piece in pieces])


def event(body: object) -> bytes:
    """Return the event of the OpenAI kind."""
    return b"data: %b\n\n" % encode(body)


def named_event(name: str, body: dict[str, Any]) -> bytes:
    """Return the event of the kind that says its name twice."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode({"type": name, **body}))


def frame(example: bytes) -> Frame:
    """Return the frame of an event that has `GAP` for its text; nothing like it may follow that."""
    before, _, after = example.rpartition(encode(GAP))
    return Frame(before, after)

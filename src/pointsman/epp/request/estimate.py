"""How many tokens an image or a video is, where nobody can ask its model: llm-d's estimates, by size and length.

An image is width · height / factor tokens, or a fixed number; a video is a number of frames times the tokens of one.
The size of an image is read from its first bytes when the request carries them; what is only named by a URL has a usual
size. What clients know of their videos they may say in headers.

In a prompt's text a medium is as long as its tokens are, and its content is a hash of its identity, so that equal ones
are equal prefixes. Beyond `_MOST_TEXT` tokens of media in one request they are counted only.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Literal

import msgspec
from xxhash import xxh64_hexdigest

from pointsman.core.numbers import real, whole

_MOST_TEXT = 131_072
_LEAST_TEXT = 4  # what a hash takes
_TOKEN_CHARACTERS = 4
_HEAD_CHARACTERS = 1 << 16  # of base64 that are looked at for a size; JPEG may have a long preface


class ImageEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of an image, or of a frame."""

    mode: Literal["dynamic", "static"] = "dynamic"
    width: int = 640  # where it is not known
    height: int = 360
    factor: int = 1024  # pixels to a token
    fixed: int = 0

    def tokens(self, size: tuple[int, int] | None) -> int:
        """Return the number for a size."""
        if self.mode == "static":
            return self.fixed
        width, height = size or (self.width, self.height)
        return width * height // self.factor


class VideoEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a video."""

    frame: ImageEstimate = ImageEstimate()
    mode: Literal["sampled", "strided"] = "sampled"
    least_frames: int = 0
    most_frames: int = 0  # 0: any number
    sample_fps: float = 1.0
    merged: int = 1  # sampled frames that become one
    source_fps: float = 24.0
    stride: int = 1
    seconds: float = 10.0
    most_tokens: int = 0  # 0: any number

    def tokens(self, hints: "VideoHints") -> int:
        """Return the number for what a client says of its videos."""
        seconds = hints.seconds or self.seconds
        if self.mode == "sampled":
            frames = self._within(int(seconds * self.sample_fps)) // max(self.merged, 1)
        else:
            frames = self._within(int(seconds * (hints.fps or self.source_fps) / self.stride))
        tokens = frames * self.frame.tokens(hints.size)
        return min(tokens, self.most_tokens) if self.most_tokens else tokens

    def _within(self, frames: int) -> int:
        frames = max(frames, self.least_frames)
        return min(frames, self.most_frames) if self.most_frames else frames


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """How media are estimated."""

    image: ImageEstimate = ImageEstimate()
    video: VideoEstimate = VideoEstimate()


class VideoHints(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says of its videos; 0 and None where it says nothing."""

    fps: float = 0.0
    seconds: float = 0.0
    size: tuple[int, int] | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "VideoHints":
        """Return what headers say; what makes no sense says nothing."""
        width, _, height = headers.get("x-llm-d-video-resolution", "").lower().partition("x")
        across, down = whole(width, most=99_999), whole(height, most=99_999)
        return cls(
            fps=_positive(headers.get("x-llm-d-video-fps", "")),
            seconds=_positive(headers.get("x-llm-d-video-duration-seconds", "")),
            size=(across, down) if across is not None and down is not None else None,
        )


def _positive(text: str) -> float:
    value = real(text) or 0.0
    return value if 0 < value < 1e6 else 0.0


def image_size(source: str) -> tuple[int, int] | None:
    """Return width and height of an image that is there itself (`data:…;base64,…`, or base64 alone); None otherwise."""
    if source.startswith(("http:", "https:", "file:")):
        return None
    text = source.partition(",")[2] if source.startswith("data:") else source
    text = text[:_HEAD_CHARACTERS]
    try:
        head = base64.b64decode(text[: len(text) - len(text) % 4])
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"RIFF") and head[8:16] == b"WEBPVP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Walk the segments of a JPEG to the one that has the size."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        kind, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= kind <= 0xCF and kind not in {0xC4, 0xC8, 0xCC}:
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 2 + length
    return None


class Placeholders:
    """What stands for the media of one request."""

    __slots__ = ("_estimates", "_headers", "_left", "tokens", "uncounted")

    def __init__(self, estimates: Estimates, *, headers: Mapping[str, str]) -> None:
        self._estimates = estimates
        self._headers = headers
        self._left = _MOST_TEXT
        self.uncounted = 0  # tokens that are not in the text
        self.tokens = 0  # all of them

    def text(self, kind: str, identity: str) -> str:
        """Return what stands in the prompt for a medium."""
        tokens = max(self._tokens(kind, identity), _LEAST_TEXT)
        shown = max(min(tokens, self._left), _LEAST_TEXT)
        self._left -= shown
        self.tokens += tokens
        self.uncounted += tokens - shown
        digest = xxh64_hexdigest(f"{kind} {identity}".encode("utf-8", "replace"))
        size = shown * _TOKEN_CHARACTERS
        return (digest * (size // len(digest) + 1))[:size]

    def _tokens(self, kind: str, identity: str) -> int:
        if "image" in kind:
            return self._estimates.image.tokens(image_size(identity))
        return self._estimates.video.tokens(VideoHints.of(self._headers)) if "video" in kind else 0

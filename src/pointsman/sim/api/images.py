"""Answers with a picture (`--omni`): text as before, then one image, after the time that it takes to make.

The picture is always the same pixel. Text becomes a list of parts as soon as an image will follow, because a reader
must not have to change its mind about the type of `content`.
"""

from typing import Any

from pointsman.sim.api.chat import ChatWriter
from pointsman.sim.jobs.frames import GAP, Frame, frame
from pointsman.sim.jobs.job import Choice

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg"
    "YGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)
_PART = {"type": "image_url", "image_url": {"url": PIXEL}}


def _text(piece: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": piece}]


class ImageWriter(ChatWriter):
    """Writes chat completions that end with an image."""

    def frame(self, choice: Choice) -> Frame:
        return frame(self._delta(choice, {"content": _text(GAP)}))

    def finish(self, choice: Choice) -> bytes:
        shown = {"index": choice.index, "finish_reason": None, "delta": {"content": [_PART]}}
        return self._chunk([shown], modality="image") + super().finish(choice)

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        shown = super()._whole_choice(choice)
        shown["message"]["content"] = [*_text(choice.text), _PART]
        return shown

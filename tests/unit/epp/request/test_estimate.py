"""Media as tokens: by their size, by their length, and by what clients say."""

import base64
import json
from collections.abc import Mapping

import pytest

from pointsman.epp.body.payload import BodyReading
from pointsman.epp.request.estimate import Estimates, ImageEstimate, Placeholders, VideoEstimate, VideoHints, image_size
from pointsman.epp.request.request import Needs

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (1920).to_bytes(4, "big") + (1080).to_bytes(4, "big") + b"\0" * 9
GIF = b"GIF89a" + (320).to_bytes(2, "little") + (200).to_bytes(2, "little") + b"\0" * 5
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")
JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc2\0\x11\x08" + (600).to_bytes(2, "big") + (800).to_bytes(2, "big") + b"\0" * 9


def data_url(raw: bytes) -> str:
    return "data:image/x;base64," + base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("source", "size"),
    [
        pytest.param(data_url(PNG), (1920, 1080), id="PNG"),
        pytest.param(base64.b64encode(GIF).decode(), (320, 200), id="GIF, without a head"),
        pytest.param(data_url(WEBP), (100, 50), id="WebP"),
        pytest.param(data_url(JPEG), (800, 600), id="JPEG"),
        pytest.param(data_url(PNG[:20]), None, id="cut off"),
        pytest.param(data_url(JPEG[:10]), None, id="a JPEG that is cut off"),
        pytest.param(data_url(b"\xff\xd8" + b"\xff\xe0\0\0" * 9), None, id="segments that lead nowhere"),
        pytest.param(data_url(b"hello"), None, id="no image"),
        pytest.param("data:image/png;base64,***", None, id="no base64"),
        pytest.param("https://example.org/cat.png", None, id="a URL"),
        pytest.param("\ud800", None, id="no text"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_size_of_an_image(source: str, size: tuple[int, int] | None) -> None:
    assert image_size(source) == size


@pytest.mark.parametrize(
    ("estimate", "size", "tokens"),
    [
        (ImageEstimate(), None, 225),
        (ImageEstimate(), (1920, 1080), 2025),
        (ImageEstimate(factor=256), (32, 32), 4),
        (ImageEstimate(mode="static", fixed=77), (1920, 1080), 77),
    ],
)
def test_images(estimate: ImageEstimate, size: tuple[int, int] | None, tokens: int) -> None:
    assert estimate.tokens(size) == tokens


@pytest.mark.parametrize(
    ("estimate", "headers", "tokens"),
    [
        pytest.param(VideoEstimate(), {}, 2250, id="ten seconds, a frame each"),
        pytest.param(VideoEstimate(merged=2, most_frames=6), {}, 3 * 225, id="merged and capped"),
        pytest.param(VideoEstimate(least_frames=20), {}, 20 * 225, id="at least"),
        pytest.param(VideoEstimate(most_tokens=100), {}, 100, id="a cap on tokens"),
        pytest.param(
            VideoEstimate(mode="strided", stride=12, frame=ImageEstimate(mode="static", fixed=10)),
            {"x-llm-d-video-fps": "30", "x-llm-d-video-duration-seconds": "4"},
            100,
            id="strided, as the client says",
        ),
        pytest.param(VideoEstimate(), {"x-llm-d-video-resolution": "64x32"}, 20, id="a resolution"),
        pytest.param(
            VideoEstimate(),
            {
                "x-llm-d-video-resolution": "bigxsmall",
                "x-llm-d-video-duration-seconds": "-inf",
                "x-llm-d-video-fps": "",
            },
            2250,
            id="nonsense",
        ),
    ],
)
def test_videos(estimate: VideoEstimate, headers: Mapping[str, str], tokens: int) -> None:
    assert estimate.tokens(VideoHints.of(headers)) == tokens


def test_equal_media_are_equal_and_others_are_not() -> None:
    media = Placeholders(Estimates(), headers={})
    first, again, other = media.text("image", "a"), media.text("image", "a"), media.text("image", "b")
    assert first == again != other
    assert len(first) == 225 * 4
    assert len(media.text("input_audio", "x")) == 16


def test_much_of_it_is_counted_and_not_written() -> None:
    media = Placeholders(Estimates(image=ImageEstimate(mode="static", fixed=1_000_000)), headers={})
    size = sum(len(media.text("image", str(number))) for number in range(100))
    assert size // 4 + media.uncounted == 100_000_000
    assert size < 600_000


def test_an_image_is_as_many_tokens_as_it_has_pixels_and_not_as_it_has_bytes() -> None:
    image = data_url(PNG + b"x" * 100_000)
    document = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}]}
    prompt = BodyReading(json.dumps(document).encode(), needs=Needs(body=True, prompt=True)).prompt()
    assert prompt is not None
    assert prompt.tokens == 2025 + 1, "and a role"

"""Which images, videos and sounds a request has, whichever API it is for."""

from typing import Any

import msgspec
import pytest
from xxhash import xxh64_intdigest

from pointsman.epp.body.media import conversation_items, feature_items
from pointsman.epp.request.request import MediaItem


def items(*modalities: str, **sizes: int) -> list[MediaItem]:
    """Return items by identity and size, with their modalities where some are no images."""
    hashes = [(xxh64_intdigest(identity.encode()), size) for identity, size in sizes.items()]
    kinds = modalities or ("image",) * len(hashes)
    return [MediaItem(hash=one, modality=kind, size=size) for (one, size), kind in zip(hashes, kinds, strict=True)]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param([{"type": "image_url", "image_url": {"url": "u"}}], items(u=1), id="chat image"),
        pytest.param([{"type": "video_url", "video_url": {"url": "u"}}], items("video", u=1), id="chat video"),
        pytest.param(
            [{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}], items("audio", d=1), id="sound"
        ),
        pytest.param([{"type": "input_image", "image_url": "u"}], items(u=1), id="responses"),
        pytest.param([{"type": "input_image", "file_id": "f"}], items(f=1), id="responses, a file"),
        pytest.param([{"type": "image", "source": {"type": "base64", "data": "d"}}], items(d=1), id="anthropic"),
        pytest.param([{"type": "image", "source": {"type": "file", "file_id": "f"}}], items(f=1), id="anthropic, file"),
        pytest.param([{"type": "image_url", "image_url": None, "uuid": "i"}], items(i=1), id="known by its uuid alone"),
        pytest.param(
            [{"type": "image_url", "image_url": {"url": "u"}, "uuid": "i"}], items(i=1), id="the uuid goes first"
        ),
        pytest.param(
            [
                {"type": "image_url", "image_url": {"url": "u"}},
                {"type": "image_url", "image_url": {"url": "v"}},
                {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
            ],
            items(u=1, v=1),
            id="each once",
        ),
        pytest.param([{"type": "text", "text": "u"}], [], id="text is no medium"),
        pytest.param([{"type": "image_url"}], [], id="an image that is nowhere"),
        pytest.param([{"type": "image_url", "image_url": {"url": 7}}], [], id="a number where a URL belongs"),
        pytest.param([7, None, {"type": ["image_url"]}], [], id="blocks of no kind"),
    ],
)
def test_media_of_a_conversation(blocks: list[Any], expected: list[MediaItem]) -> None:
    assert conversation_items([{"role": "user", "content": blocks}]) == expected


@pytest.mark.parametrize("messages", [None, "x", [7], [{"content": "text"}], {"content": []}])
def test_what_is_no_conversation_has_no_media(messages: Any) -> None:
    assert conversation_items(messages) == []


def test_media_of_several_messages() -> None:
    messages = [{"content": [{"type": "image_url", "image_url": {"url": url}}]} for url in "abc"]
    assert len(conversation_items(messages)) == 3


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        pytest.param(
            {"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": {"image": [{"length": 5}, {"length": 7}]}},
            items(a=5, b=7),
            id="with their lengths",
        ),
        pytest.param(
            {"mm_hashes": {"image": ["a"], "audio": ["b"]}, "mm_placeholders": {"audio": [{"length": 9}]}},
            items("image", "audio", a=1, b=9),
            id="of two kinds, one without lengths",
        ),
        pytest.param(
            {"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": {"image": [{"length": 0}]}},
            items(a=1, b=1),
            id="lengths that are none",
        ),
        pytest.param(
            {"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": {"image": [{"length": "5"}, 7]}},
            items(a=1, b=1),
            id="lengths of the wrong type",
        ),
        pytest.param({"mm_hashes": {"image": [None, "", 7], "audio": "x"}}, [], id="hashes that are none"),
        pytest.param({"mm_hashes": ["a"], "mm_placeholders": 3}, [], id="of the wrong shape"),
        pytest.param({}, [], id="empty"),
        pytest.param(None, [], id="null"),
        pytest.param([1], [], id="no object"),
    ],
)
def test_media_of_a_rendered_request(features: Any, expected: list[MediaItem]) -> None:
    assert feature_items(msgspec.json.encode(features)) == expected


def test_media_of_one_request_are_bounded() -> None:
    blocks = [{"type": "image_url", "image_url": {"url": f"http://h/{n}"}} for n in range(5000)]
    assert len(conversation_items([{"role": "user", "content": blocks}])) == 1024
    assert len(feature_items({"mm_hashes": {"image": [f"h{n}" for n in range(5000)]}})) == 1024

"""The images, videos and sounds of a request: which they are, and how large.

A model server encodes each of them once and keeps the result; to go where it is kept, equal media must have equal
hashes. The identity is what the client says: the hash that vLLM gave them (`features` of a rendered request), a `uuid`,
or where the content is: its URL or its bytes. Nothing is fetched or decoded, so a size is known only from `features`;
elsewhere every item counts as 1.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from xxhash import xxh64_intdigest

from pointsman.core.numbers import is_count
from pointsman.epp.request.request import MediaItem

KINDS = frozenset(("image_url", "video_url", "audio_url", "input_audio", "image", "input_image", "video", "audio"))
_PLACES = ("image_url", "source", "file_id")  # where APIs put what is not under the block's own kind
_CONTENTS = ("url", "data", "file_id")
_MOST_ITEMS = 1024  # of one request: whoever keeps the request keeps them


class _Features(msgspec.Struct, gc=False):
    mm_hashes: Any = None
    mm_placeholders: Any = None


_read_features = msgspec.json.Decoder(_Features).decode


def _source_of(block: Mapping[str, Any], kind: str) -> object:
    """Return what a media block says about its content; None when it says nothing."""
    return next((block[key] for key in (kind, *_PLACES) if block.get(key) is not None), None)


def conversation_items(messages: Any) -> list[MediaItem]:
    """Return the media in a conversation, each once."""
    return _once(
        (identity, _modality(kind), 1) for block, kind in _blocks(messages) if (identity := identity_of(block, kind))
    )


def feature_items(features: Any) -> list[MediaItem]:
    """Return the media of a request that was rendered before, each once, with the tokens that they take.

    `features` is JSON, or what was read from it.
    """
    try:
        read = _read_features(features) if isinstance(features, bytes) else msgspec.convert(features, _Features)
    except (ValueError, RecursionError):
        return []
    places = read.mm_placeholders if isinstance(read.mm_placeholders, dict) else {}
    modalities = read.mm_hashes.items() if isinstance(read.mm_hashes, dict) else ()
    return _once(
        (identity, str(modality), _length(places.get(modality), at))
        for modality, hashes in modalities
        if isinstance(hashes, list)
        for at, identity in enumerate(hashes)
        if isinstance(identity, str) and identity
    )


def _blocks(messages: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            inner = block.get("content") if isinstance(block, dict) else None  # of a tool's result
            for each in inner if isinstance(inner, list) else (block,):
                kind = each.get("type") if isinstance(each, dict) else None
                if isinstance(kind, str) and kind in KINDS:
                    yield each, kind


def identity_of(block: Mapping[str, Any], kind: str) -> str:
    """Return what tells a medium from others; nothing when the block does not say."""
    source = _source_of(block, kind)
    inner = source if isinstance(source, dict) else {}
    known = (block.get("uuid"), source, *(inner.get(key) for key in _CONTENTS))
    return next((each for each in known if isinstance(each, str) and each), "")


def _length(places: Any, at: int) -> int:
    place = places[at] if isinstance(places, list) and at < len(places) else None
    length = place.get("length") if isinstance(place, dict) else None
    return length if is_count(length) and length > 0 else 1


def _modality(kind: str) -> str:
    return "video" if "video" in kind else "audio" if "audio" in kind else "image"


def _once(found: Iterable[tuple[str, str, int]]) -> list[MediaItem]:
    items: dict[int, MediaItem] = {}
    for identity, modality, size in found:
        hashed = xxh64_intdigest(identity.encode("utf-8", "replace"))
        items[hashed] = MediaItem(hash=hashed, modality=modality, size=size)
        if len(items) == _MOST_ITEMS:
            break
    return list(items.values())

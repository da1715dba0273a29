"""How much of a source is read, wherever it comes from: nobody's bundle needs more, and a bomb gets no further."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """How much an image may hold: bytes after decompression, entries, bytes of one file and of all that we keep."""

    unpacked: int = 128 * 1024 * 1024
    entries: int = 20_000
    file: int = 32 * 1024 * 1024
    kept: int = 128 * 1024 * 1024


BUNDLE_LIMITS = ImageLimits()
CATALOG_LIMITS = ImageLimits(2 * 1024**3, 500_000, 256 * 1024 * 1024, 1024**3)

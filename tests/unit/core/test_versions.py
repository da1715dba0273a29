"""Versions compare as semantic versions do, and nothing else is one."""

import pytest

from pointsman.core.versions import find_version

ORDERED = [
    "0.9.9",
    "v1.0.0-1",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-rc.2",
    "1.0",
    "1.0.1",
    "1.10.0",
]


def test_order() -> None:
    versions = [version for text in ORDERED if (version := find_version(text)) is not None]
    assert len(versions) == len(ORDERED) and versions == sorted(versions)
    assert len(set(versions)) == len(versions)


def test_build_metadata_does_not_count() -> None:
    assert find_version("1.2.3+build.7") == find_version("v1.2.3")


@pytest.mark.parametrize(
    "text", ["", "main-dev", "1", "1.2.3.4", "01.2.3", "1.2.²", f"1.2.{'9' * 5000}", "1.2.3-" + "a" * 5000]
)
def test_what_is_no_version(text: str) -> None:
    assert find_version(text) is None

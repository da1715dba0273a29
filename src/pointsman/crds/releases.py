"""Releases of definitions, and which of two is newer.

A release is what a project's bundle-version annotation says. One that is no version (`main-dev`) or is not there
compares with nothing: then the schema alone decides what an upgrade may do.
"""

import re
from collections.abc import Mapping
from typing import Literal

from pointsman.api.inference import BUNDLE_VERSION, ROUTER_VERSION
from pointsman.core.versions import find_version

Order = Literal["older", "same", "newer", "unknown"]
_MINOR = re.compile(r"v?(\d{1,9})\.(\d{1,9})", re.ASCII)


def release_of(annotations: Mapping[str, str]) -> str:
    """Return the release that a definition says it is of; empty when it says none."""
    return str(annotations.get(BUNDLE_VERSION) or annotations.get(ROUTER_VERSION) or "")


def order(ours: str, theirs: str) -> Order:
    """Tell how our release stands to theirs."""
    if ours and ours == theirs:
        return "same"
    mine, other = find_version(ours), find_version(theirs)
    if mine is None or other is None:
        return "unknown"
    return "same" if mine == other else "newer" if mine > other else "older"


def minor(version: str) -> tuple[int, int] | None:
    """Return major and minor of a version in a tag such as `1.27.3-distroless`; None when it has none."""
    found = _MINOR.match(version)
    return (int(found[1]), int(found[2])) if found else None

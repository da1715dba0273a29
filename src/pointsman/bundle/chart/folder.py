"""A chart's files → a folder, again and again: what only the last run wrote goes, what others added stays."""

import json
from collections.abc import Mapping
from pathlib import Path

from pointsman.bundle.chart.chart import LIST, list_of
from pointsman.bundle.model import Bundle
from pointsman.core.errors import UserError


def write_chart(files: Mapping[str, str], bundle: Bundle, folder: Path) -> None:
    """Write the files; raises UserError for a folder with content that we did not write."""
    before = _before(folder)
    try:
        for path in before - files.keys():
            (folder / path).unlink(missing_ok=True)
        for path, text in {**files, LIST: list_of(files, bundle)}.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None


def _before(folder: Path) -> set[str]:
    """Return the files that the last run wrote."""
    listed = folder / LIST
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return set()
    try:
        found = json.loads(listed.read_text())["files"]
        paths = {str(each) for each in found}
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{folder}: is not empty, and no chart of this command: choose another folder") from None
    if any(path.startswith("/") or ".." in path.split("/") for path in paths):
        raise UserError(f"{listed}: names a file outside of the folder")
    return paths

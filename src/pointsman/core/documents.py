"""YAML in and out, with libyaml when it is there. Bad syntax is a UserError that names file, line and column."""

from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - PyYAML without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

from pointsman.core.errors import UserError


def parse_yaml(text: str | bytes, *, name: str) -> Any:
    """Return the one document in the text.

    Raises UserError naming `name`, line and column when it is not YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        # Elsewhere the context is the parser's view; here it is the half of the sentence that says what is wrong.
        context = f"{error.context}, " if isinstance(error, ComposerError) and error.context else ""
        raise UserError(f"{where}: not valid YAML: {context}{error.problem or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{name}: not valid YAML: {error}") from None


def read_yaml(path: Path) -> Any:
    """Return the one document in the file; a missing or unreadable file is a UserError too."""
    try:
        return parse_yaml(path.read_bytes(), name=str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def to_yaml(document: Any) -> str:
    """Return the document as YAML, keys in the order given, everything written out where it stands."""
    text: str = yaml.dump(document, Dumper=_WrittenOut, sort_keys=False, width=110, allow_unicode=True)
    return text


class _WrittenOut(_Dumper):
    """Writes a list that stands in two places twice: people and some readers stumble over anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Say that nothing is written as a reference."""
        return True

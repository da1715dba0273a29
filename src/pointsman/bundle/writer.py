"""YAML that every reader reads alike, and the same text for the same objects.

Owns quoting: text is written bare only where YAML 1.1, YAML 1.2 and Go's readers all take it for text; everything else
is in double quotes or, with several lines, in a literal block. Nothing is dropped and nothing is rounded: `{}`, `[]`,
`""`, 0 and null are written as they are. No anchors. A third of the time of PyYAML's dumper, because the many repeated
keys and words are quoted once.

A chart needs places that Helm fills in: `Template` is such a place, between quotes or bare, and with `helm=True` every
brace pair of the bundle's own text is written so that Helm gives it back unchanged.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_KEY_LIMIT = 120  # beyond 1024 YAML wants a key marked, and nobody reads one of that length
_BARE = re.compile(r"(?:[A-Za-z_/]|--?[A-Za-z])(?:[!-\"$-9;-~]|:(?=[!-~])|(?<! )#|(?<!^) (?=[!-\"$-9;-~]))*(?<!:)")
_QUANTITY = re.compile(r"[1-9][0-9]*(?:m|Ki|Mi|Gi|Ti|k|M|G|s|h)")
_WORDS = frozenset(
    ("y", "n", "yes", "no", "true", "false", "on", "off", "null")  # in any case, for one reader or another
)
# Characters beyond 255 stand apart from the class: together they would take longer to compile than a bundle to write.
_FAR = "\u2028|\u2029|[\ud800-\udfff]|\ufeff|\ufffe|\uffff"
_NOT_IN_BLOCK = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f]|{_FAR}")
_ESCAPED = re.compile(f'[\\\\"\x00-\x1f\x7f-\x9f]|{_FAR}')
_NAMED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


@dataclass(frozen=True, slots=True)
class Action:
    """What Helm evaluates, without its braces."""

    text: str


@dataclass(frozen=True, slots=True)
class Template:
    """A value that Helm fills in: text and actions between quotes, or one action that yields JSON by itself."""

    parts: tuple[str | Action, ...]
    quoted: bool = True


def write_documents(documents: Iterable[Any], *, helm: bool = False) -> str:
    """Return the documents with `---` between them."""
    writer = _Writer(helm=helm)
    return "---\n".join(writer.document(each) for each in documents)


def write_document(document: Any, *, helm: bool = False) -> str:
    """Return one document."""
    return _Writer(helm=helm).document(document)


class _Writer:
    """Writes documents; what it has quoted once it remembers."""

    def __init__(self, *, helm: bool) -> None:
        self._helm = helm
        self._known: dict[str, str] = {}

    def document(self, value: Any) -> str:
        lines: list[str] = []
        if isinstance(value, dict) and value:
            self._mapping(value, "", lines)
        elif isinstance(value, list) and value:
            self._sequence(value, "", lines)
        else:
            lines.append(self._scalar(value, ""))
        lines.append("")
        return "\n".join(lines)

    def _mapping(self, mapping: dict[str, Any], pad: str, lines: list[str]) -> None:
        known = self._known
        inner = pad + "  "
        for key, value in mapping.items():
            name = known.get(key) or self._text(key)
            if len(name) > _KEY_LIMIT:
                lines.append(f"{pad}? {name}")
                name = ""
            kind = value.__class__
            if kind is str:
                text = known.get(value) or self._string(value, inner)
                lines.append(f"{pad}{name}: {text}")
            elif kind is dict and value:
                lines.append(f"{pad}{name}:")
                self._mapping(value, inner, lines)
            elif kind is list and value:
                lines.append(f"{pad}{name}:")
                self._sequence(value, pad, lines)
            else:
                lines.append(f"{pad}{name}: {self._scalar(value, inner)}")

    def _sequence(self, sequence: list[Any], pad: str, lines: list[str]) -> None:
        inner = pad + "  "
        for value in sequence:
            first = len(lines)
            if value and value.__class__ is dict:
                self._mapping(value, inner, lines)
            elif value and value.__class__ is list:
                self._sequence(value, inner, lines)
            else:
                lines.append(inner + self._scalar(value, inner))
            lines[first] = f"{pad}- {lines[first][len(inner) :]}"

    def _scalar(self, value: Any, pad: str) -> str:
        if isinstance(value, str):
            return self._known.get(value) or self._string(value, pad)
        if isinstance(value, Template):
            return self._template(value)
        if isinstance(value, dict | list):
            return "{}" if isinstance(value, dict) else "[]"
        if value is None or isinstance(value, bool):
            return "null" if value is None else str(value).lower()
        return _float(value) if isinstance(value, float) else str(value)

    def _template(self, value: Template) -> str:
        written = "".join(
            f"{{{{ {part.text} }}}}" if isinstance(part, Action) else self._braces(_quoted(part)[1:-1])
            for part in value.parts
        )
        return f'"{written}"' if value.quoted else written

    def _string(self, text: str, pad: str) -> str:
        """Return text of any number of lines; with several it depends on where it stands and is not remembered."""
        if "\n" not in text or not _fits_block(text):
            return self._text(text)
        body = text.rstrip("\n")
        ends = len(text) - len(body)
        mark = "|" + ("-", "", "+")[min(ends, 2)]
        written = "\n".join(pad + line if line else "" for line in body.split("\n"))
        return self._braces(f"{mark}\n{written}") + "\n" * max(ends - 1, 0)

    def _text(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._braces(text if _is_bare(text) else _quoted(text))
        return found

    def _braces(self, written: str) -> str:
        return written.replace("{{", '{{ "{{" }}') if self._helm and "{{" in written else written


def _is_bare(text: str) -> bool:
    if _BARE.fullmatch(text):
        return text.lower() not in _WORDS
    return _QUANTITY.fullmatch(text) is not None


def _fits_block(text: str) -> bool:
    """Say whether a literal block gives the text back: it must begin with content, and no line may end in a blank."""
    return (
        text[0] not in " \t\n"
        and " \n" not in text
        and "\t\n" not in text
        and text[-1] not in " \t"
        and not _NOT_IN_BLOCK.search(text)
    )


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"' if _ESCAPED.search(text) else f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _NAMED.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def _float(value: float) -> str:
    """Return a number with a point, which some readers want before they take it for one."""
    text = repr(value)
    return text if "." in text or "e" not in text else text.replace("e", ".0e")

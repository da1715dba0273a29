"""Take secrets out of what is handed to others: a bundle is read by people who must not have them.

Secrets are not gathered in the first place; this is for those that stand where they should not: values of variables and
fields that are named like one, keys and tokens inside texts, passwords in addresses, what `kubectl apply` remembers.
"""

import re
from typing import Any

GONE = "[removed]"
_SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|credential|authorization|cookie|(api|access|private)[-_.]?key)",
    re.IGNORECASE,
)
_INNOCENT = re.compile(
    r"(max|min|num|count|usage|length|limit|tokens|budget|block|name|path|file|mount)", re.IGNORECASE
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_USERINFO = re.compile(r"://[^/@\s:]+:[^/@\s]+@")
_FLAG = re.compile(r"(?<![\w-])(--?[\w-]+)=(\S+)")
_DROPPED = frozenset(
    {"managedFields", "kubectl.kubernetes.io/last-applied-configuration", "inline_bytes", "private_key"}
)
_DEEPEST = 100


def redact(document: Any, *, depth: int = 0) -> Any:
    """Return a document without what looks like a secret."""
    if depth > _DEEPEST:
        return GONE
    if isinstance(document, dict):
        if "name" in document and "value" in document and _is_secret(str(document["name"])):
            document = {**document, "value": GONE}
        return {key: _field(key, value, depth) for key, value in document.items() if key != "managedFields"}
    if isinstance(document, list):
        return [
            GONE if _follows_secret_flag(document, place) else redact(one, depth=depth + 1)
            for place, one in enumerate(document)
        ]
    return redact_text(document) if isinstance(document, str) else document


def redact_text(text: str) -> str:
    """Return a text without keys, tokens and passwords."""
    for pattern in (_PEM, _JWT):
        text = pattern.sub(GONE, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {GONE}", text)
    text = _USERINFO.sub(f"://{GONE}@", text)
    return _FLAG.sub(lambda found: f"{found[1]}={GONE}" if _is_secret(found[1]) else found[0], text)


def _field(key: str, value: Any, depth: int) -> Any:
    if key in _DROPPED or (isinstance(value, str) and value and _is_secret(key)):
        return GONE
    return redact(value, depth=depth + 1)


def _follows_secret_flag(words: list[Any], place: int) -> bool:
    """Tell whether a word is the value of the flag before it, and that one is named like a secret."""
    before, word = (words[place - 1] if place else ""), words[place]
    if not isinstance(before, str) or not isinstance(word, str):
        return False
    return before.startswith("--") and "=" not in before and not word.startswith("--") and _is_secret(before)


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _INNOCENT.search(name)

"""Kubernetes label selectors, as resources and as command-line text write them. Pure.

app=vllm,tier!=test,zone in (a, b),env notin (dev),gpu,!spot
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pointsman.core.errors import UserError

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<akey>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\(\s*(?P<values>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\))?)\s*(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it; a label that is absent is in no set, and so not in the wrong one."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that all must be met; none matches everything."""

    terms: tuple[Term, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet all requirements."""
        return all(term.matches(labels) for term in self.terms)


def match_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a resource's `matchLabels`."""
    return Selector(tuple(Term(key, "In", frozenset({value})) for key, value in sorted(labels.items())))


def parse_selector(text: str, *, where: str) -> Selector:
    """Return the selector that a text says.

    Raises UserError naming `where` and the part that is wrong.
    """
    terms, at = [], 0
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None:
            raise UserError(
                f"{where}: {text[at:].strip()!r} is not a label requirement: write key=value, key!=value, "
                "key in (a,b), key notin (a), key or !key, with commas between"
            )
        terms.append(_term(match))
        at = match.end()
    if not terms or text.rstrip().endswith(","):
        raise UserError(f"{where}: {text!r} has an empty requirement: remove the comma or write key=value")
    return Selector(tuple(terms))


def _term(match: re.Match[str]) -> Term:
    if match["absent"]:
        return Term(match["akey"], "DoesNotExist")
    if match["op"]:
        return Term(match["key"], "NotIn" if match["op"] == "!=" else "In", frozenset({match["value"]}))
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Term(match["key"], "NotIn" if match["set"] == "notin" else "In", values)
    return Term(match["key"], "Exists")

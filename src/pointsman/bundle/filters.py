"""Which objects are wanted, by jq expressions, as olm-extractor takes them.

An object goes if any `exclude` yields true, and stays if there is no `include` or any yields true. Only `true` counts.
An expression that fails on an object is an error that names both: to guess would lose objects without a word.
"""

import json
from collections.abc import Iterable, Sequence

from pointsman.bundle.model import Object, identity
from pointsman.core.errors import UserError


def wanted(objects: Iterable[Object], *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Object]:
    """Return the objects that the expressions leave; raises UserError for an expression that is none, or fails."""
    if not include and not exclude:
        return list(objects)
    leave = [_Filter("--exclude", each) for each in exclude]
    keep = [_Filter("--include", each) for each in include]
    kept = []
    for document in objects:
        text = json.dumps(document, default=str)  # what Helm fills in is some text
        if not any(each.holds(text, document) for each in leave) and (
            not keep or any(each.holds(text, document) for each in keep)
        ):
            kept.append(document)
    return kept


class _Filter:
    """One expression, compiled once."""

    def __init__(self, flag: str, expression: str) -> None:
        import jq

        self._name = f"{flag} {expression!r}"
        try:
            self._program = jq.compile(expression)
        except ValueError as error:
            raise UserError(f"{self._name} is no jq expression: {str(error).splitlines()[0]}") from None

    def holds(self, text: str, document: Object) -> bool:
        try:
            return any(value is True for value in self._program.input_text(text))
        except ValueError as error:
            problem = str(error)
        # Raised only here, where the failed iterator is gone: in the frames of a traceback it would be collected after
        # its program, and jq's binding does not survive that.
        kind, _, name = identity(document)
        raise UserError(f"{self._name} fails on {kind} {name}: {problem}")

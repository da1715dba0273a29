"""The template language of LLMInferenceServiceConfigs, as far as presets use it. Pure, and linear in the text.

KServe evaluates presets as Go templates. Here are the parts that its presets have: values (`{{ .Spec.Model.Name }}`),
`if`, `else` and `end`, `or`, `and`, `not`, `eq` and `ChildName`, with `{{-` and `-}}` cutting white space. Anything
else is refused by name. A string that a condition leaves empty stays in its list, as it does in KServe.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.numbers import SAFE, whole
from pointsman.render.serving.merge import NESTED
from pointsman.render.serving.names import child_name

_ACTION = re.compile(r"\{\{(-?)([^{}]*)\}\}")
_WORD = re.compile(r'\s*(?:`([^`]*)`|"([^"]*)"|([^\s`"]+))')
_DEEPEST = 20
_MISSING = object()


class TemplateError(UserError):
    """A text that cannot be evaluated."""


def expanded(value: Any, context: Mapping[str, Any], *, path: str = "spec", depth: int = 0) -> Any:
    """Return a document with every template in it evaluated. Raises TemplateError naming the field."""
    if isinstance(value, str):
        return expand(value, context, path=path) if "{{" in value else value
    if depth > NESTED:
        raise TemplateError(f"{path[:120]}…: blocks are nested more than {NESTED} deep: no part of a Pod is")
    if isinstance(value, Mapping):
        inside = {name: (f"{path}.{name}", inner) for name, inner in value.items()}
        return {name: expanded(inner, context, path=at, depth=depth + 1) for name, (at, inner) in inside.items()}
    if isinstance(value, list):
        return [expanded(inner, context, path=f"{path}[{at}]", depth=depth + 1) for at, inner in enumerate(value)]
    return value


def expand(text: str, context: Mapping[str, Any], *, path: str) -> str:
    """Return a text with its actions evaluated. Raises TemplateError naming the field."""
    shown: list[bool] = []  # of the conditions that are open: whether their branch is taken
    result: list[str] = []
    try:
        for plain, action in _parts(text):
            if all(shown):
                result.append(plain)
            result.extend(_act(action, context, shown) if action is not None else ())
    except TemplateError as error:
        raise TemplateError(f"{path}: {error}") from None
    if shown:
        raise TemplateError(f"{path}: an if has no end")
    return "".join(result)


def _parts(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each plain text with the action that follows it, trimmed as the action says."""
    at, trim = 0, False
    for found in _ACTION.finditer(text):
        plain = text[at : found.start()]
        inside = found[2]
        cut = inside.endswith("-")
        plain = plain.lstrip() if trim else plain
        yield plain.rstrip() if found[1] else plain, inside.removesuffix("-").strip()
        at, trim = found.end(), cut
    rest = text[at:]
    if "{{" in rest:
        raise TemplateError("a {{ has no }}")
    yield rest.lstrip() if trim else rest, None


def _act(action: str, context: Mapping[str, Any], shown: list[bool]) -> Iterator[str]:
    word, _, rest = action.partition(" ")
    if word == "if":
        if len(shown) >= _DEEPEST:
            raise TemplateError(f"more than {_DEEPEST} conditions are open")
        # What is not shown is not looked at: its fields may well be missing.
        shown.append(all(shown) and bool(_evaluate(rest, context, missing=None)))
    elif action == "else":
        if not shown:
            raise TemplateError("else has no if before it")
        shown[-1] = not shown[-1] and all(shown[:-1])
    elif action == "end":
        if not shown:
            raise TemplateError("end has no if before it")
        shown.pop()
    elif all(shown):
        yield _written(_evaluate(action, context, missing=_MISSING), action)


def _evaluate(expression: str, context: Mapping[str, Any], *, missing: Any) -> Any:
    words = _words(expression)
    if len(words) == 1:
        return _value(words[0], context, missing=missing)
    (literal, name), arguments = words[0], words[1:]
    if literal or name not in _FUNCTIONS:
        raise TemplateError(f"{expression!r} is not understood: there are {', '.join(_FUNCTIONS)}, and fields")
    return _FUNCTIONS[name]([_value(each, context, missing=None) for each in arguments])


def _words(expression: str) -> list[tuple[bool, str]]:
    """Return the words of an expression, and of each whether it is a literal text."""
    words, at = [], 0
    stripped = expression.strip()
    while at < len(stripped):
        found = _WORD.match(stripped, at)
        if found is None:
            raise TemplateError(f"{expression!r} is not understood")
        words.append((found[3] is None, found[found.lastindex or 0]))
        at = found.end()
    if not words:
        raise TemplateError("{{ }} says nothing")
    return words


def _value(word: tuple[bool, str], context: Mapping[str, Any], *, missing: Any) -> Any:
    literal, text = word
    if literal:
        return text
    number = whole(text.removeprefix("-"), most=SAFE)
    if number is not None:
        return -number if text.startswith("-") else number
    if not text.startswith("."):
        raise TemplateError(f"{text!r} is not understood: a field begins with a dot")
    value: Any = context
    for name in text[1:].split("."):
        known = {str(key).lower(): key for key in value} if isinstance(value, Mapping) else {}
        if name.lower() not in known:
            return missing
        value = value[known[name.lower()]]
    return value


def _written(value: Any, action: str) -> str:
    if value is _MISSING or value is None:
        raise TemplateError(f"{action} is not set")
    if isinstance(value, Mapping | list):
        raise TemplateError(f"{action} is no single value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _child_name(arguments: Sequence[Any]) -> str:
    if len(arguments) != 2 or not all(isinstance(each, str) for each in arguments):
        raise TemplateError("ChildName takes a name and what follows it")
    return child_name(arguments[0], arguments[1])


_FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "ChildName": _child_name,
    "or": lambda arguments: next((each for each in arguments if each), arguments[-1]),
    "and": lambda arguments: next((each for each in arguments if not each), arguments[-1]),
    "not": lambda arguments: not arguments[0],
    "eq": lambda arguments: any(arguments[0] == each for each in arguments[1:]),
}

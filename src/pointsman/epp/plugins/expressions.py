"""Small expressions over numbers, in the words of CEL: what `request-attribute-reporter` is told to report.

Read once when a configuration is loaded, into functions; what is asked for and not there is an error of that one
evaluation. Understood are numbers, `true`, `false`, members (`usage.prompt_tokens`), `has(…)`, `int(…)`, `double(…)`,
arithmetic, comparisons, `!`, `&&`, `||` and `a ? b : c`: all that the published examples use.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Evaluate = Callable[[Mapping[str, Any]], Any]

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([A-Za-z_]\w*)|(&&|\|\||[<>=!]=|[-+*/%<>!?:().]))")
_LONGEST, _DEEPEST, _MOST_TOKENS = 4096, 50, 400
_BINARY: tuple[Mapping[str, Callable[[Any, Any], Any]], ...] = (
    {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a / b, "%": lambda a, b: a % b},
)


class BadExpression(ValueError):
    """An expression that cannot be read; the message says where."""


def parse(text: str) -> Evaluate:
    """Return what evaluates an expression, given its variables; that raises LookupError, TypeError or ArithmeticError.

    Raises BadExpression.
    """
    if len(text) > _LONGEST:
        raise BadExpression(f"it has {len(text)} characters: at most {_LONGEST} are read")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._at = 0
        self._depth = 0
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise BadExpression(f"{text[at:].lstrip()[:20]!r} is not understood")
            self._tokens.append(found[found.lastindex or 0])
            at = found.end()
        if len(self._tokens) > _MOST_TOKENS:  # each sum is within the next: evaluating is as deep as it is long
            raise BadExpression(f"it has {len(self._tokens)} numbers, names and signs: at most {_MOST_TOKENS} are read")

    def whole(self) -> Evaluate:
        found = self._choice()
        if self._next():
            raise BadExpression(f"{self._next()!r} is not expected here")
        return found

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _takes(self, token: str) -> bool:
        if self._next() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise BadExpression(f"{token!r} is missing before {self._next() or 'the end'!r}")

    def _choice(self) -> Evaluate:
        self._deeper()
        condition = self._either()
        if self._takes("?"):
            yes = self._choice()
            self._expect(":")
            no, test = self._choice(), condition
            condition = lambda values: yes(values) if test(values) else no(values)  # noqa: E731 - the rest of this one
        self._depth -= 1
        return condition

    def _either(self) -> Evaluate:
        found = self._both()
        while self._takes("||"):
            found = _or(found, self._both())
        return found

    def _both(self) -> Evaluate:
        found = self._level(0)
        while self._takes("&&"):
            found = _and(found, self._level(0))
        return found

    def _level(self, at: int) -> Evaluate:
        if at == len(_BINARY):
            return self._signed()
        found = self._level(at + 1)
        while (operator := _BINARY[at].get(self._next())) is not None:
            self._at += 1
            found = _apply(operator, found, self._level(at + 1))
        return found

    def _signed(self) -> Evaluate:
        sign = self._next()
        if sign not in {"!", "-"}:
            return self._value()
        self._at += 1
        self._deeper()
        inner = self._signed()
        self._depth -= 1
        return (lambda values: not inner(values)) if sign == "!" else lambda values: -inner(values)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BadExpression(f"it is nested deeper than {_DEEPEST} levels")

    def _value(self) -> Evaluate:
        word = self._next()
        self._at += 1
        if word == "(":
            found = self._choice()
            self._expect(")")
            return found
        if word[:1].isdigit():
            number = float(word) if "." in word else int(word)
            return lambda _values: number
        if word in {"true", "false"}:
            return lambda _values: word == "true"
        if word[:1].isalpha() or word[:1] == "_":
            return self._call(word) if self._takes("(") else self._member(word)
        raise BadExpression(f"a value is missing before {word or 'the end'!r}")

    def _call(self, name: str) -> Evaluate:
        if name not in {"has", "int", "double"}:
            raise BadExpression(f"the function {name!r} is unknown: there is has, int, double")
        inner = self._choice()
        self._expect(")")
        if name == "has":
            return lambda values: _has(inner, values)
        kind = int if name == "int" else float
        return lambda values: kind(inner(values))

    def _member(self, name: str) -> Evaluate:
        way = [name]
        while self._takes("."):
            if not self._next().isidentifier():
                raise BadExpression(f"a name is missing after the dot of {'.'.join(way)!r}")
            way.append(self._next())
            self._at += 1
        if way[0] != "usage":
            raise BadExpression(f"{way[0]!r} is unknown: there is usage")

        def look(values: Mapping[str, Any]) -> Any:
            found: Any = values
            for step in way:
                found = found[step]
            return found

        return look


def _or(one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda values: bool(one(values)) or bool(other(values))


def _and(one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda values: bool(one(values)) and bool(other(values))


def _apply(operator: Callable[[Any, Any], Any], one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda values: operator(one(values), other(values))


def _has(inner: Evaluate, values: Mapping[str, Any]) -> bool:
    try:
        inner(values)
    except (LookupError, TypeError):
        return False
    return True

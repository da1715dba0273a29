"""Values of a file that people write as typed objects, with every mistake named by its path.

pydantic does the checking; this turns its findings into sentences that a person can act on: the path as it stands in
the file (`plugins[2].parameters.threshold`), what is wrong, and for a name that nobody knows the nearest one that
somebody does.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from pointsman.core.errors import UserError

T = TypeVar("T")

_STRICT = ConfigDict(extra="forbid", alias_generator=to_camel, validate_by_alias=True, validate_by_name=True)


@dataclass(frozen=True)
class Problem:
    """One mistake in a file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(UserError):
    """A configuration that cannot be used, with all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], *, name: str) -> None:
        self.problems = tuple(problems)
        if len(problems) == 1:
            text = f"{name}: {problems[0]}"
        else:
            text = "\n  ".join([f"{name}: {len(problems)} mistakes:", *map(str, problems)])
        super().__init__(text)


@dataclass(frozen=True)
class Checked(Generic[T]):
    """A value, or why there is none."""

    value: T | None
    problems: tuple[Problem, ...] = ()


def check(kind: type[T], raw: object, *, path: str) -> Checked[T]:
    """Return the raw value as an instance of a dataclass or model, or all that is wrong with it."""
    try:
        return Checked(_adapter(kind).validate_python(raw))
    except ValidationError as error:
        found = [_problem(each, kind=kind, path=path) for each in error.errors(include_url=False)]
        return Checked(None, tuple(dict.fromkeys(found)))
    except Exception as error:  # a user's __post_init__ may fail in any way
        return Checked(None, (Problem(path, f"{type(error).__name__}: {error}"),))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'x'?` for the nearest known name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f": did you mean {close[0]!r}?" if close else ""


def dump(value: Any) -> dict[str, Any]:
    """Return a checked value as it would stand in a file, defaults included."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        document: dict[str, Any] = TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=False)
        return {each.name: document[each.name] for each in dataclasses.fields(value) if each.init}
    return {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "__pydantic_validator__"):
        frozen: bool = vars(kind)["__dataclass_params__"].frozen
        strict: Callable[[type[Any]], type[Any]] = pydantic.dataclasses.dataclass(config=_STRICT, frozen=frozen)
        return TypeAdapter(strict(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel) and "extra" not in kind.model_config:
        # pydantic ignores unknown fields unless told otherwise, and a typo must never be ignored.
        return TypeAdapter(type(kind.__name__, (kind,), {"model_config": ConfigDict(extra="forbid")}))
    return TypeAdapter(kind)


def _problem(error: ErrorDetails, *, kind: type[Any], path: str) -> Problem:
    where = join(path, error["loc"])
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        known = _spelled_at(kind, error["loc"][:-1])
        hint = nearest(name, known) or (f": there is {', '.join(known)}" if known else ": it takes none")
        return Problem(where, f"unknown field{hint}")
    if error["type"] in {"missing", "missing_argument", "missing_keyword_only_argument"}:
        return Problem(where, "is missing: it has no default")
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = error["input"]
    if error["type"] != "value_error" and isinstance(given, str | int | float | bool):
        message += f", not {given!r}"
    return Problem(where, message)


def join(path: str, parts: Sequence[str | int]) -> str:
    """Return a path with further parts: names after dots, positions in brackets."""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def names_at(kind: Any, parts: Sequence[str | int]) -> list[str]:
    """Return the field names, as files spell them, of the type at a path within a type."""
    for part in parts:
        kind = item_type(kind, part)
    for each in _members(kind):
        names = [_alias(name, field) for name, field in _fields(each).items()]
        if names:
            return names
    return []


def _spelled_at(kind: Any, parts: Sequence[str | int]) -> list[str]:
    """Return the field names at a path, those of a dataclass as `_STRICT` has them in files."""
    for part in parts:
        kind = item_type(kind, part)
    is_plain = any(isinstance(each, type) and dataclasses.is_dataclass(each) for each in _members(kind))
    return [to_camel(name).rstrip("_") if is_plain else name for name in names_at(kind, ())]


def item_type(kind: Any, part: str | int) -> Any:
    """Return the type of what is at a name or position within a type; None when there is no such thing."""
    return next((found for each in _members(kind) if (found := _item(each, part)) is not None), None)


def _item(kind: Any, part: str | int) -> Any:
    """Return the type of a field by its name, or of a list's or mapping's items."""
    for name, field in _fields(kind).items():
        if part in {name, _alias(name, field), to_camel(name)}:
            return getattr(field, "annotation", None) or getattr(field, "type", None)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {list, tuple} and isinstance(part, int):
        return arguments[0]
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return arguments[1]
    return None


def _members(kind: Any) -> Sequence[Any]:
    """Return the alternatives of a union, or the type itself."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return [each for each in typing.get_args(kind) if each is not type(None)]
    return (kind,)


def _fields(kind: Any) -> Mapping[str, Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return {each.name: each for each in dataclasses.fields(kind) if each.init}
    return {}


def _alias(name: str, field: Any) -> str:
    alias = getattr(field, "alias", None)
    return alias if isinstance(alias, str) else name

"""YAML in and out, with libyaml when it is there. Bad syntax is a UserError that names file, line and column.

libyaml calls itself for each level (at some ten thousand the process would be gone), a number may be written in base 60
(which takes the square of its length), and a list that stands in many places by reference may mean more than fits
anywhere. So depth, digits and what is meant by references are bounded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - PyYAML without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

from pointsman.core.errors import UserError

_DEEPEST = 200
_MOST_DIGITS = 40
_MOST_MEANT = 1_000_000
_MOST_MERGED = 20_000
_MERGE = "tag:yaml.org,2002:merge"


def parse_yaml(text: str | bytes, *, name: str) -> Any:
    """Return the one document in the text.

    Raises UserError naming `name`, line and column when it is not YAML.
    """
    return _parse(text, name=name, load=lambda data: yaml.load(data, Loader=_Bounded))  # noqa: S506 - safe, and bounded


def parse_first(text: str | bytes, *, name: str) -> tuple[Any, bool]:
    """Return the first document in the text, and whether others follow that say something.

    Raises UserError as `parse_yaml` does.
    """
    found = _parse(text, name=name, load=lambda data: list(yaml.load_all(data, Loader=_Bounded)))
    return (found[0] if found else None), any(each is not None for each in found[1:])


def _parse(text: str | bytes, *, name: str, load: Callable[[bytes], Any]) -> Any:
    try:
        text = text.encode() if isinstance(text, str) else text
        _refuse_depth(text, name=name)
        found = load(text)
        if b"*" in text:
            _refuse_bomb(found, name=name)
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        # Elsewhere the context is the parser's view; here it is the half of the sentence that says what is wrong.
        context = f"{error.context}, " if isinstance(error, ComposerError) and error.context else ""
        raise UserError(f"{where}: not valid YAML: {context}{error.problem or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
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


class _Bounded(_Loader):
    """Reads no number that is longer than one can be meant to be, no key twice, and no more merged than can be meant.

    A merge (`<<`) copies what it names, and what it names may be merged itself: ten of ten of ten in a few lines would
    be copied long before anybody could weigh the document.
    """

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._flat: set[int] = set()  # the mappings that were looked at
        self._merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what is merged into its place; a mapping comes here once for itself and once for each that merges it."""
        if id(node) not in self._flat:
            self._flat.add(id(node))
            _refuse_twice(node)
        for key, value in node.value:
            if key.tag == _MERGE:
                for each in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                    self._count_merge(each)
        super().flatten_mapping(node)

    def _count_merge(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            self.flatten_mapping(node)
            self._merged += 1 + len(node.value)
        if self._merged > _MOST_MERGED:
            raise ConstructorError(None, None, "its merges (<<) stand for too much: write it out", node.start_mark)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number."""
        if len(node.value) > _MOST_DIGITS:
            raise ConstructorError(None, None, "a number of so many digits: write a smaller one", node.start_mark)
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Return a number; in base 60 (`1:30.5`) it has to be a short one, which nothing says of a fraction."""
        if ":" in node.value and len(node.value) > _MOST_DIGITS:
            raise ConstructorError(None, None, "a number of so many digits: write a smaller one", node.start_mark)
        return super().construct_yaml_float(node)


_Bounded.add_constructor("tag:yaml.org,2002:int", _Bounded.construct_yaml_int)
_Bounded.add_constructor("tag:yaml.org,2002:float", _Bounded.construct_yaml_float)


def _refuse_twice(node: yaml.MappingNode) -> None:
    """Raise when a key stands twice: one of them would be lost, and nobody would know which."""
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if (key.tag, key.value) in seen:
                problem = f"{key.value[:100]!r} stands twice in one mapping: keep one of them"
                raise ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))


def _refuse_depth(text: bytes, *, name: str) -> None:
    """Raise UserError when things are nested too deep. Events are read one by one, without recursion."""
    longest = max(map(len, text.split(b"\n")))
    if text.count(b"[") + text.count(b"{") + 2 * longest < _DEEPEST:  # each level takes a bracket, or a column
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise UserError(f"{name}: more than {_DEEPEST} levels deep: nothing that we read is")


def _refuse_bomb(document: Any, *, name: str) -> None:
    """Raise UserError when references make the document mean too much, or itself."""
    weights: dict[int, int] = {}

    def weigh(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        if inner is None:
            return 1
        if id(value) not in weights:
            weights[id(value)] = _MOST_MEANT  # until it is known: who is within himself has no end
            weights[id(value)] = 1 + sum(weigh(each) for each in inner)
        return weights[id(value)]

    if weigh(document) > _MOST_MEANT:
        raise UserError(f"{name}: its references (*) stand for too much: write out what is meant")


class _WrittenOut(_Dumper):
    """Writes a list that stands in two places twice: people and some readers stumble over anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Say that nothing is written as a reference."""
        return True

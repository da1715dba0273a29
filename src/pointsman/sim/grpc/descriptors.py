"""Descriptors of our .proto files, as gRPC's reflection hands them out, without a protobuf compiler.

Reads the part of the language that those files use (messages, services, `oneof`, `optional`, `map`, no nesting) and
encodes a FileDescriptorProto. Numbers below are field numbers of google/protobuf/descriptor.proto.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pointsman.sim.grpc.protobuf import encode

_KINDS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_BLOCK = re.compile(r"^(message|service) (\w+) \{(?:\}|\n(.*?)^\})", re.MULTILINE | re.DOTALL)
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")
_ONEOF = re.compile(r"oneof (\w+) \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(optional |repeated |)(map<(\w+), (\w+)>|\w+) (\w+) = (\d+);")


class File(NamedTuple):
    """A file: its encoded descriptor, and what is defined in it by full name."""

    name: str
    descriptor: bytes
    services: list[str]
    symbols: set[str]


def compile_file(name: str, text: str) -> File:
    """Return the descriptor of a file in our subset of the language."""
    found = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    assert found is not None
    package = found[1]
    parts: list[tuple[int, str | bytes]] = [(1, name), (2, package)]
    services: list[str] = []
    symbols: set[str] = set()
    for kind, title, body in _BLOCK.findall(text):
        full = f"{package}.{title}"
        symbols.add(full)
        if kind == "message":
            parts.append((4, _message(title, body, package=package)))
            symbols |= {f"{full}.{field[4]}" for field in _FIELD.findall(body)}
        else:
            parts.append((6, _service(title, body, package=package)))
            services.append(full)
            symbols |= {f"{full}.{rpc[0]}" for rpc in _RPC.findall(body)}
    parts.append((12, "proto3"))
    return File(name, encode(*parts), services, symbols)


def _service(title: str, body: str, *, package: str) -> bytes:
    methods = [
        (2, encode((1, name), (2, f".{package}.{given}"), (3, f".{package}.{made}"), (5, bool(up)), (6, bool(down))))
        for name, up, given, down, made in _RPC.findall(body)
    ]
    return encode((1, title), *methods)


def _message(title: str, body: str, *, package: str) -> bytes:
    """Encode a message; a proto3 `optional` is a oneof of its own, and those come after the real ones."""
    groups = [name for name, _ in _ONEOF.findall(body)]
    members = {field[4]: name for name, inner in _ONEOF.findall(body) for field in _FIELD.findall(inner)}
    fields, nested = [], []
    for label, kind, key, value, name, number in _FIELD.findall(body):
        group = members.get(name)
        if label == "optional ":
            group = f"_{name}"
            groups.append(group)
        target = _type(kind, package=package)
        if key:
            entry = "".join(part.title() for part in name.split("_")) + "Entry"
            nested.append((3, _entry(entry, key=key, value=value)))
            target = _MESSAGE, f".{package}.{title}.{entry}"
        many = _REPEATED if key or label == "repeated " else _OPTIONAL
        place = [(9, groups.index(group))] if group is not None else []
        shape = list(_shape(name, int(number), label=many, target=target))
        fields.append((2, encode(*shape) + _index(place) + encode((17, label == "optional "))))
    return encode((1, title), *fields, *nested, *((8, encode((1, group))) for group in groups))


def _index(place: list[tuple[int, int]]) -> bytes:
    """Encode which oneof a field belongs to; unlike a default, the first one's number 0 must be written."""
    return b"".join(bytes((number << 3, index)) for number, index in place)


def _shape(name: str, number: int, *, label: int, target: tuple[int, str]) -> Iterator[tuple[int, int | str]]:
    words = name.split("_")
    yield from ((1, name), (3, number), (4, label), (5, target[0]), (6, target[1]))
    yield 10, words[0] + "".join(word.title() for word in words[1:])


def _type(kind: str, *, package: str) -> tuple[int, str]:
    return (_KINDS[kind], "") if kind in _KINDS else (_MESSAGE, f".{package}.{kind}")


def _entry(title: str, *, key: str, value: str) -> bytes:
    pairs = (("key", 1, key), ("value", 2, value))
    fields = [(2, encode(*_shape(name, n, label=_OPTIONAL, target=(_KINDS[kind], "")))) for name, n, kind in pairs]
    return encode((1, title), *fields, (7, encode((7, 1))))

"""JSON read by its bytes: where the members of the top-level object are, and, when it is not JSON, why not.

The fast path of a body is msgspec (`payload`); this is for the rest: splicing a model name without touching any other
byte, bodies nested deeper than a recursive parser goes, and telling a client what is wrong in the words that llm-d's
users know (the messages are those of Go's decoder, which clients and dashboards match on). One pass, no recursion; the
work is done by compiled expressions: a long prompt is one step, and so is a long list of numbers, texts, or small
objects. A step costs some microseconds, so there may only be so many: they are about as many as there are containers
within containers, which a conversation has few of.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = re.compile(rb"[ \t\r\n]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# No group is repeated possessively: Python before 3.11.5 gets that wrong. They are repeated only so often instead, so
# that what the engine remembers for going back stays small, and `_run` repeats the whole.
_TIMES = 64
_WS = rb"[ \t\r\n]*+"
_INSIDE = rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){0,%d}' % _TIMES
_SCALAR = rb'(?:"%b"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)' % _INSIDE
_PAIR = rb'"%b"%b:%b' % (_INSIDE, _WS, _WS)
_ITEMS = rb"\[%b(?:%b%b(?:,%b%b%b){0,%d})?\]" % (_WS, _SCALAR, _WS, _WS, _SCALAR, _WS, _TIMES)
_PAIRS = rb"\{%b(?:%b%b%b(?:,%b%b%b%b){0,%d})?\}" % (_WS, _PAIR, _SCALAR, _WS, _WS, _PAIR, _SCALAR, _WS, _TIMES)
_FLAT = rb"(?:%b|%b|%b)%b,%b" % (_SCALAR, _ITEMS, _PAIRS, _WS, _WS)  # nothing deeper within it, and something after it
_STRING = re.compile(_INSIDE)
_ELEMENTS = re.compile(rb"(?:%b){0,%d}" % (_FLAT, _TIMES))
_MEMBERS = re.compile(rb"(?:%b%b){0,%d}" % (_PAIR, _FLAT, _TIMES))
_LITERALS = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGITS = frozenset(b"0123456789")
_MAX_DEPTH = 10_000
_MAX_STEPS = 50_000
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b"{}[]"
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS = b'"\\,:-'


class NotJson(ValueError):
    """The bytes are not JSON; the message is the one of Go's decoder."""


@dataclass(frozen=True, slots=True)
class MemberSpan:
    """One member of the top-level object: its key, and where its value stands."""

    key: str
    start: int
    stop: int


def scan_members(data: bytes) -> list[MemberSpan]:
    """Return the members of the top-level object, in their order; nothing when the top level is no object.

    Raises NotJson.
    """
    members: list[MemberSpan] = []
    try:
        at = _value(data, _skip(data, 0), members)
    except IndexError:
        raise NotJson("unexpected end of JSON input") from None
    at = _skip(data, at)
    if at != len(data):
        raise NotJson(f"invalid character {_quote(data[at])} after top-level value")
    return members


def top_level_kind(data: bytes) -> str:
    """Return what the (valid) document is, as Go names it: object, array, string, number, bool or null."""
    kinds = {ord("{"): "object", ord("["): "array", ord('"'): "string", ord("n"): "null"}
    kinds |= dict.fromkeys(b"tf", "bool")
    return kinds.get(data[_skip(data, 0)], "number")


def splice_member(data: bytes, key: str, value: bytes) -> bytes:
    """Return the object with the value of every top-level member of this key replaced, and no other byte changed.

    A member that is not there is added as the first.
    """
    members = scan_members(data)
    out, at = [], 0
    for member in members:
        if member.key == key:
            out += [data[at : member.start], value]
            at = member.stop
    if not out:
        at = _skip(data, 0) + 1
        out = [data[:at], json.dumps(key).encode(), b":", value, b"," if members else b""]
    return b"".join([*out, data[at:]])


def _next(data: bytes, at: int) -> int:
    """Return the byte here; at the end a space, which is what Go's decoder complains about in the middle of a token."""
    return data[at] if at < len(data) else 0x20


def _skip(data: bytes, at: int) -> int:
    return _match(_SPACE, data, at)


def _match(pattern: "re.Pattern[bytes]", data: bytes, at: int) -> int:
    """Return where the longest match of a pattern that matches anything, if only nothing, ends."""
    found = pattern.match(data, at)
    assert found is not None
    return found.end()


def _run(pattern: "re.Pattern[bytes]", data: bytes, at: int) -> int:
    """Return where such a pattern, repeated as often as it matches something, ends."""
    while (end := _match(pattern, data, at)) > at:
        at = end
    return at


def _value(data: bytes, at: int, members: list[MemberSpan]) -> int:
    """Check the value that begins here and all within it; note the members of the outermost object."""
    stack: list[int] = []  # the open brackets
    key, key_start = "", 0
    for _ in range(_MAX_STEPS):
        at, opened = _begin(data, at, stack)
        if opened == _OPEN_OBJECT:
            key, at, key_start = _key(data, at, stack, key, key_start)
            continue
        if opened == _OPEN_ARRAY:
            at = _run(_ELEMENTS, data, at)
            continue
        # A value has ended: close what it closes.
        while stack:
            if len(stack) == 1 and stack[0] == _OPEN_OBJECT:
                members.append(MemberSpan(key, key_start, at))
            at = _skip(data, at)
            sign = data[at]
            inside = stack[-1]
            if sign == _COMMA:
                at = _skip(data, at + 1)
                if inside == _OPEN_OBJECT:
                    key, at, key_start = _key(data, at, stack, key, key_start)
                else:
                    at = _run(_ELEMENTS, data, at)
                break
            if sign != (_CLOSE_OBJECT if inside == _OPEN_OBJECT else _CLOSE_ARRAY):
                where = "after object key:value pair" if inside == _OPEN_OBJECT else "after array element"
                raise NotJson(f"invalid character {_quote(sign)} {where}")
            stack.pop()
            at += 1
        else:
            return at
    raise NotJson(f"more than {_MAX_STEPS} values within values")


def _begin(data: bytes, at: int, stack: list[int]) -> tuple[int, int]:
    """Step over a scalar or an empty container, or into a container; return where, and the bracket that was opened."""
    sign = data[at]
    if sign in {_OPEN_OBJECT, _OPEN_ARRAY}:
        after = _skip(data, at + 1)
        closing = _CLOSE_OBJECT if sign == _OPEN_OBJECT else _CLOSE_ARRAY
        if len(stack) >= _MAX_DEPTH:
            raise NotJson("exceeded max depth")
        if data[after] == closing:
            return after + 1, 0
        stack.append(sign)
        return after, sign
    if sign == _QUOTE:
        return _string(data, at), 0
    if sign == _MINUS or sign in _DIGITS:
        return _number(data, at), 0
    literal = _LITERALS.get(sign)
    if literal is None:
        raise NotJson(f"invalid character {_quote(sign)} looking for beginning of value")
    for offset, expected in enumerate(literal):
        if _next(data, at + offset) != expected:
            wrong = _quote(_next(data, at + offset))
            raise NotJson(f"invalid character {wrong} in literal {literal.decode()} (expecting {_quote(expected)})")
    return at + len(literal), 0


def _key(data: bytes, at: int, stack: list[int], key: str, start: int) -> tuple[str, int, int]:
    """Step over a key and its colon; return the outermost object's current key, where its value begins, and that."""
    if len(stack) > 1:
        at = _run(_MEMBERS, data, at)
    if data[at] != _QUOTE:
        raise NotJson(f"invalid character {_quote(data[at])} looking for beginning of object key string")
    stop = _string(data, at)
    after = _skip(data, stop)
    if data[after] != _COLON:
        raise NotJson(f"invalid character {_quote(data[after])} after object key")
    value = _skip(data, after + 1)
    if len(stack) == 1:
        return _text(data[at + 1 : stop - 1]), value, value
    return key, value, start


def _string(data: bytes, at: int) -> int:
    """Return the position after the string that begins here."""
    at = _run(_STRING, data, at + 1)
    sign = data[at]
    if sign == _QUOTE:
        return at + 1
    if sign != _BACKSLASH:
        raise NotJson(f"invalid character {_quote(sign)} in string literal")
    escape = _next(data, at + 1)
    if escape != ord("u"):
        raise NotJson(f"invalid character {_quote(escape)} in string escape code")
    wrong = next(digit for digit in range(at + 2, at + 6) if _next(data, digit) not in _HEX)
    raise NotJson(f"invalid character {_quote(_next(data, wrong))} in \\u hexadecimal character escape")


def _number(data: bytes, at: int) -> int:
    """Return the position after the number that begins here."""
    found = _NUMBER.match(data, at)
    if found is None:
        raise NotJson(f"invalid character {_quote(_next(data, at + 1))} in numeric literal")
    stop = found.end()
    # The expression takes the longest number; what follows it shows whether a longer one was begun.
    if stop < len(data):
        seen = found[0]
        if data[stop] == ord(".") and b"." not in seen and b"e" not in seen.lower():
            raise NotJson(f"invalid character {_quote(_next(data, stop + 1))} after decimal point in numeric literal")
        if data[stop] in b"eE" and b"e" not in seen.lower():
            wrong = stop + 2 if _next(data, stop + 1) in b"+-" else stop + 1
            raise NotJson(f"invalid character {_quote(_next(data, wrong))} in exponent of numeric literal")
    return stop


def _text(raw: bytes) -> str:
    if b"\\" not in raw:
        return raw.decode("utf-8", "replace")
    return str(json.loads(b'"' + raw.decode("utf-8", "replace").encode() + b'"'))


def _quote(byte: int) -> str:
    """Return a character as Go quotes it."""
    if byte == 0x27:
        return "'\\''"
    if byte == 0x22:
        return "'\"'"
    return f"'{''.join(_go_escape(byte))}'"


def _go_escape(byte: int) -> Iterator[str]:
    short = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 0x5C: "\\\\"}
    if byte in short:
        yield short[byte]
    elif byte < 0x20 or byte == 0x7F:
        yield f"\\x{byte:02x}"
    elif 0x80 <= byte < 0xA1 or byte == 0xAD:
        yield f"\\u{byte:04x}"
    else:
        yield chr(byte)


def json_string(text: str) -> bytes:
    """Return a JSON string as servers write it: non-ASCII as it is."""
    return json.dumps(text, ensure_ascii=False).encode()

"""The byte scanner: the same verdict as json.loads, the same words as Go's decoder, the right spans."""

import json
import os
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pointsman.epp.body.jsonscan import NotJson, scan_members, splice_member, top_level_kind

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "500"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def reject(constant: str) -> None:
    raise ValueError(constant)


@settings(max_examples=EXAMPLES)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=6), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_fuzz_members_are_those_of_json_loads(document: dict[str, object], indent: int | None, ascii_: bool) -> None:
    raw = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    members = scan_members(raw)
    assert [member.key for member in members] == list(document)
    assert [json.loads(raw[m.start : m.stop].decode("utf-8", "surrogatepass")) for m in members] == list(
        document.values()
    )


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_fuzz_mutations_are_judged_as_json_loads_judges(data: st.DataObject) -> None:
    raw = bytearray(json.dumps(data.draw(JSON)).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.lists(st.sampled_from(b'{}[]",:\\0123eE+-.tfnul \n\x00a'), max_size=2).map(bytes)
        )
    check_verdict(bytes(raw))


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=40))
@example(b'{"a":1}\x00')
def test_fuzz_any_bytes(raw: bytes) -> None:
    check_verdict(raw)


def check_verdict(raw: bytes) -> None:
    try:
        # Go takes text that is not UTF-8; json.loads does not, so the oracle sees it replaced.
        json.loads(raw.decode("utf-8", "replace").lstrip("\ufeff") or "x", parse_constant=reject)
        valid = not raw.startswith(b"\xef\xbb\xbf")
    except (ValueError, RecursionError):
        valid = False
    try:
        scan_members(raw)
    except NotJson:
        assert not valid, raw
    else:
        assert valid, raw


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no healthy upstream", "invalid character 'o' in literal null (expecting 'u')"),
        (b"", "unexpected end of JSON input"),
        (b"   ", "unexpected end of JSON input"),
        (b'{"a":1', "unexpected end of JSON input"),
        (b'{"a', "unexpected end of JSON input"),
        (b"nul", "invalid character ' ' in literal null (expecting 'l')"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b'{"a":01}', "invalid character '1' after object key:value pair"),
        (b'{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        (b'{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        (b'{"a":-}', "invalid character '}' in numeric literal"),
        (b'{"a":"\n"}', "invalid character '\\n' in string literal"),
        (b'{"a":"\\x"}', "invalid character 'x' in string escape code"),
        (b'{"a":"\\u12g4"}', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'{"a":1}x', "invalid character 'x' after top-level value"),
        (b"\xff", "invalid character 'ÿ' looking for beginning of value"),
        (b"\x00", "invalid character '\\x00' looking for beginning of value"),
        (b"[" * 10_001, "exceeded max depth"),
    ],
)
def test_the_words_are_go_s(body: bytes, words: str) -> None:
    with pytest.raises(NotJson) as caught:
        scan_members(body)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b" {}", "object"),
        (b"[1]", "array"),
        (b'"x"', "string"),
        (b"-1", "number"),
        (b"true", "bool"),
        (b"null", "null"),
    ],
)
def test_top_level_kinds(body: bytes, kind: str) -> None:
    scan_members(body)
    assert top_level_kind(body) == kind


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"a"}', b'{"model":"new"}'),
        (b'{ "x" : [1,{"model":"inner"}] , "model" : "a" }\n', b'{ "x" : [1,{"model":"inner"}] , "model" : "new" }\n'),
        (b'{"model":"a","model":"b"}', b'{"model":"new","model":"new"}'),
        (b'{"mod\\u0065l":"a"}', b'{"mod\\u0065l":"new"}'),
        (b'{"model":{"deep":[]},"z":1.0}', b'{"model":"new","z":1.0}'),
        (b'{"prompt":"\\"model\\":\\"a\\""}', b'{"model":"new","prompt":"\\"model\\":\\"a\\""}'),
        (b" {}", b' {"model":"new"}'),
    ],
)
def test_splice_changes_the_member_and_nothing_else(before: bytes, after: bytes) -> None:
    assert splice_member(before, "model", b'"new"') == after


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b'{"a":"' + b"\\n" * 2_000_000 + b'"}', None, id="escapes"),
        pytest.param(b'{"a":[' + b"0," * 2_000_000 + b"0]}", None, id="numbers"),
        pytest.param(b'{"a":[' + b'{"b":1},' * 500_000 + b"0]}", None, id="small objects"),
        pytest.param(b'{"a":{' + b'"b":[],' * 500_000 + b'"c":0}}', None, id="inner keys"),
        pytest.param(b'{"a":"' + b"\\\\" * 2_000_000 + b'\\u12"}', "hexadecimal", id="an error at the end"),
        pytest.param(b"{" + b'"a":1,' * 500_000 + b'"b":0}', "more than 50000", id="keys"),
        pytest.param(b'{"a":[' + b"[[[0]]]," * 500_000 + b"0]}", "more than 50000", id="containers"),
        pytest.param(b"[" * 1_000_000, "max depth", id="deep"),
    ],
)
def test_four_megabytes_of_anything_take_no_second(body: bytes, words: str | None) -> None:
    started = time.process_time()
    if words is None:
        assert len(scan_members(body)) == 1
    else:
        with pytest.raises(NotJson, match=words):
            scan_members(body)
    assert time.process_time() - started < 2  # it was 4 to 8 s

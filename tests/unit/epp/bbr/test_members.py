"""Members of a body that arrives in pieces, wherever these are cut, and at a cost in proportion to its bytes."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.epp.bbr.members import MemberScanner

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def scan(body: bytes, *, size: int) -> MemberScanner:
    scanner = MemberScanner(frozenset(("model",)))
    for at in range(0, len(body), size):
        scanner.feed(body[at : at + size])
    return scanner


@settings(max_examples=80)
@given(
    st.dictionaries(st.sampled_from(["a", 'b"\\', "model", "ü"]), JSON, max_size=4), st.integers(1, 9) | st.just(1000)
)
def test_what_is_found_is_what_is_there(document: dict[str, object], size: int) -> None:
    for body in (json.dumps(document).encode(), json.dumps(document, indent=1, ensure_ascii=False).encode()):
        scanner = scan(body, size=size)
        found = scanner.found
        assert all(body[slice(*span)] == found[name] for name, span in scanner.spans.items())
        assert scanner.spans or not found or size >= len(body), "known, but for bodies in one piece"
        assert {name: json.loads(raw) for name, raw in found.items()} == {
            name: value for name, value in document.items() if name == "model"
        }


@pytest.mark.parametrize("piece", [b"\\", b'"', b"{", b"[", b'\\"', b"x", b'{"model":'])
def test_no_body_costs_more_than_its_length(piece: bytes) -> None:
    body = b'{"a":"' + piece * 200_000
    started = time.process_time()
    scanner = scan(body, size=1000)
    assert time.process_time() - started < 10
    assert sum(map(len, scanner._text or ())) <= 4096
    assert len(scanner._rest) <= 1

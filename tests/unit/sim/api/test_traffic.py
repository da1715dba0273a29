"""Bodies in the log: unpacked where they can be, and never too long."""

import gzip

import pytest

from pointsman.sim.api.traffic import MOST, shown


@pytest.mark.parametrize(
    ("body", "encoding", "text"),
    [
        pytest.param(b'{"a":1}', "", '{"a":1}', id="plain"),
        pytest.param(gzip.compress(b'{"a":1}'), "gzip", '{"a":1}', id="packed"),
        pytest.param(b'{"a":1}', "gzip", '{"a":1}', id="not packed after all"),
        pytest.param(b"", "gzip", "", id="nothing"),
        pytest.param(b"\xff", "", "\ufffd", id="no text"),
    ],
)
def test_a_body_is_shown_as_its_sender_meant_it(body: bytes, encoding: str, text: str) -> None:
    assert shown(body, encoding=encoding) == text


def test_a_long_body_is_cut_and_says_so() -> None:
    assert shown(b"a" * (MOST + 1)).endswith(f"a ... [truncated, total {MOST + 1} bytes]")
    assert len(shown(gzip.compress(b"a" * 5 * MOST), encoding="gzip")) < MOST + 100

import pytest

from pointsman.render.envoy.types import duration, typed


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (2, "2s"), (0.25, "0.25s"), (3600, "3600s"), (1.5, "1.5s"), (10, "10s")]
)
def test_durations_are_protobufs(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_typed_names_the_message_first() -> None:
    assert typed("a.v3.B", x=1) == {"@type": "type.googleapis.com/envoy.a.v3.B", "x": 1}

"""The names that others may use are those in `__all__`."""

import pointsman.bundle


def test_everything_named_is_there_and_says_what_it_is() -> None:
    for name in pointsman.bundle.__all__:
        assert getattr(pointsman.bundle, name).__doc__, name
    assert sorted(pointsman.bundle.__all__) == pointsman.bundle.__all__

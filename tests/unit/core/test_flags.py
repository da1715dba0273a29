import pytest

from pointsman.core import flags

LINE = ("--a", "1", "--b=2", "--on", "--c", "x", "--a=3", "alone")


@pytest.mark.parametrize(("name", "expected"), [("a", "3"), ("b", "2"), ("c", "x"), ("d", "")])
def test_last_value_counts(name: str, expected: str) -> None:
    assert flags.value(LINE, name) == expected


def test_value_that_is_not_there() -> None:
    assert flags.value(("--a",), "a") == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), True),
        (("--on",), True),
        (("--on=false",), False),
        (("--on=false", "--on"), True),
        (("--only=false",), True),
    ],
)
def test_last_mention_of_a_switch_counts(words: tuple[str, ...], expected: bool) -> None:
    assert flags.switch(words, "on", default=True) is expected
    assert flags.switch(("--off", *words), "on", default=True) is expected


def test_flags_go_with_their_values_and_switches_alone() -> None:
    assert flags.without(LINE, ["a"], switches=["on"]) == ("--b=2", "--c", "x", "alone")
    assert flags.without(LINE, ["b", "c"]) == ("--a", "1", "--on", "--a=3", "alone")
    assert flags.without(("--on=true", "x"), [], switches=["on"]) == ("x",)


def test_paths_and_variables() -> None:
    assert flags.relocated(("--f", "/c/x"), paths={"/c/x": "/here/x"}) == ("--f", "/here/x")
    assert flags.expanded(("$(A).$(B)", "$(C)"), variables={"A": "1", "B": "2"}) == ("1.2", "$(C)")

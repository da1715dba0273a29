"""The scanner finds what a full parser finds, wherever a family has moved since the last page."""

import math
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pointsman.core.errors import UserError
from pointsman.epp.sources.dialects import count
from pointsman.epp.sources.scan import Finder, Spec, parse_spec, read_labels

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "150"))
NAMES = ("m", "m_total", "m:x", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason")

label_values = st.text(alphabet=st.sampled_from('ab{}",=\\\n #\té1'), max_size=6)
labels = st.dictionaries(st.sampled_from(("a", "model_name", "le")), label_values, max_size=3)
numbers = st.one_of(
    st.integers(-5, 10**6).map(str), st.floats(width=32).map(repr), st.sampled_from(("NaN", "+Inf", "1e3"))
)
stamps = st.one_of(st.just(""), st.integers(0, 10**6).map(str))
series = st.tuples(labels, numbers, stamps)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def families(draw: st.DrawFn, name: str) -> str:
    lines = draw(st.sampled_from(("", f"# HELP {name} what {name} is\n", f"# TYPE {name} gauge\n")))
    for found, number, stamp in draw(st.lists(series, max_size=4, unique_by=lambda one: tuple(sorted(one[0].items())))):
        inside = ",".join(f'{key}="{escaped(value)}"' for key, value in found.items())
        braces = f"{{{inside}}}" if inside else draw(st.sampled_from(("", "{}")))
        lines += f"{name}{braces} {number}{' ' + stamp if stamp else ''}\n"
    return lines


@st.composite
def pages(draw: st.DrawFn) -> str:
    chosen = draw(st.permutations(NAMES))
    padding = draw(st.sampled_from(("", "# nothing here\n", "# filler\n" * 200)))
    return padding + "".join(draw(families(name)) for name in chosen)


def oracle(page: str, name: str) -> list[Sample]:
    return [one for family in text_string_to_metric_families(page) for one in family.samples if one.name == name]


def stamp_of(sample: Sample) -> int:
    return round(float(sample.timestamp) * 1000) if sample.timestamp is not None else 0


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@settings(max_examples=EXAMPLES)
@given(st.lists(pages(), min_size=2, max_size=3), st.sampled_from(NAMES))
def test_fuzz_the_latest_series_is_what_a_full_parser_finds(seen: list[str], name: str) -> None:
    finder = Finder(Spec(name))
    for page in seen:
        samples = oracle(page, name)
        found = finder.latest(page.encode())
        if not samples:
            assert found is None
            continue
        assert found is not None
        expected = max(samples, key=stamp_of)  # max keeps the first of equals
        assert same(found.value, expected.value)
        assert found.timestamp == stamp_of(expected)
        assert dict(read_labels(found.labels)) == expected.labels


@st.composite
def moments(draw: st.DrawFn) -> list[str]:
    """Return pages of one server: the same families and labels, other values, and now and then a line less."""
    header = st.sampled_from(("", "# TYPE {} gauge\n", "# TYPE {} gauge\n", "# TYPE {} summary\n", "# HELP {} m 1\n"))
    shape = draw(
        st.lists(st.tuples(st.sampled_from(NAMES), st.lists(labels, max_size=3)), unique_by=lambda one: one[0])
    )
    start = st.sampled_from(("# top\n", "# top\n", "# filler\n" * 3, "# filler\n" * 200, ""))
    plain = st.one_of(st.integers(0, 10**6).map(str), st.floats(0, 10, width=16).map(repr))
    found = []
    for _ in range(4):
        page = draw(start)
        for name, all_labels in shape:
            kept = all_labels[: draw(st.sampled_from((3, 3, 3, 1, 0)))]
            page += draw(header).format(name) if draw(st.integers(0, 3)) == 0 else f"# TYPE {name} gauge\n"
            for each in kept:
                inside = ",".join(f'{key}="{escaped(value)}"' for key, value in each.items())
                number = (
                    draw(plain) if draw(st.integers(0, 3)) else draw(numbers) + draw(st.sampled_from(("", " 7", " ")))
                )
                page += f"{name}{{{inside}}} {number}\n"
        found.append(page)
    return found


@settings(max_examples=EXAMPLES)
@given(moments(), st.sampled_from(NAMES))
def test_fuzz_what_is_remembered_of_a_page_changes_nothing(seen: list[str], name: str) -> None:
    finder = Finder(Spec(name))
    for page in seen:
        afresh, found = Finder(Spec(name)).all(page.encode()), finder.all(page.encode())
        assert [repr((one.labels, one.value, one.timestamp)) for one in found] == [
            repr((one.labels, one.value, one.timestamp)) for one in afresh
        ]


@settings(max_examples=EXAMPLES)
@given(pages(), st.sampled_from(NAMES), labels)
def test_fuzz_labels_of_a_spec_choose_among_series(page: str, name: str, wanted: dict[str, str]) -> None:
    samples = [one for one in oracle(page, name) if wanted.items() <= one.labels.items()]
    found = Finder(Spec(name, tuple(wanted.items()))).latest(page.encode())
    assert (found is None) == (not samples)
    if found is not None:
        assert same(found.value, max(samples, key=stamp_of).value)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.binary(max_size=200), max_size=3), st.sampled_from(NAMES), st.binary(max_size=40))
def test_fuzz_no_page_makes_it_raise(parts: list[bytes], name: str, tail: bytes) -> None:
    finder = Finder(Spec(name, (("a", "b"),)))
    for part in parts:
        finder.latest(part + b"\n" + name.encode() + b'{a="b"' + tail)
        finder.largest(name.encode() + part)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"m one\n", id="a value that is no number"),
        pytest.param(b"m 1_000\n", id="Python's underscore is not a number's"),
        pytest.param(b"m\n", id="no value"),
        pytest.param(b"m 1 2 3\n", id="too many words"),
        pytest.param(b'm{a="b" 1\n', id="braces that do not close"),
        pytest.param(b"mm 1\n", id="a longer name"),
        pytest.param(b"x_m 1\n# m 1\n", id="not at the start of a line"),
        pytest.param(b'# TYPE m summary\nm{quantile="0.5"} 1\n', id="a summary is neither gauge nor counter"),
        pytest.param(b'm{a="' + b"x" * 20_000 + b'"} 1\n', id="labels beyond all measure"),
        pytest.param(b"", id="an empty page"),
    ],
)
def test_improper_lines_are_not_there(page: bytes) -> None:
    assert Finder(Spec("m")).latest(page) is None


TOP = b"# top\n# TYPE m gauge\n"
BELOW = b"# TYPE n gauge\n"


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param(TOP + b'm{a="1"} 5\n' + BELOW, [5], id="the same"),
        pytest.param(TOP + b'm{a="1"} 6.5e+2\n' + BELOW, [650], id="another value"),
        pytest.param(b"# more\n" + TOP + b'm{a="1"} 5\n' + BELOW, [5], id="moved"),
        pytest.param(b"# more\n" + TOP + b'm{a="1"} 61\n' + BELOW, [61], id="moved, another value"),
        pytest.param(b"# more\n" * 1000 + TOP + b'm{a="1"} 61\n' + BELOW, [61], id="far away"),
        pytest.param(TOP + b'm{a="1"} 6\nm{a="2"} 7\n' + BELOW, [6, 7], id="one line more"),
        pytest.param(TOP + b'm{a="0"} 4\nm{a="1"} 5\n' + BELOW, [4, 5], id="one line more before"),
        pytest.param(TOP + b'm{a="1"} 5\n', [5], id="nothing behind"),
        pytest.param(TOP + b'm{a="1"} 5', [5], id="no line break"),
        pytest.param(TOP + b'm{a="1"} 5\nm', [5], id="a line that is cut"),
        pytest.param(TOP + b'm{a="1"} 5 99\n' + BELOW, [5], id="with a time"),
        pytest.param(TOP + b'm{a="1"} -5\n' + BELOW, [-5], id="with a sign"),
        pytest.param(TOP + b'm{a="1"} 5 \r\n' + BELOW, [5], id="blanks"),
        pytest.param(TOP + b'm{a="1"} 5.5.5\n' + BELOW, [], id="no number"),
        pytest.param(TOP + b'm{a="1"} 5_5\n' + BELOW, [], id="Python's number"),
        pytest.param(TOP + b'm{a="1"}\n' + BELOW, [], id="no value"),
        pytest.param(TOP + b'm{a="2"} 5\n' + BELOW, [5], id="other labels"),
        pytest.param(TOP.replace(b"gauge", b"summary") + b'm{a="1"} 5\n' + BELOW, [], id="a summary now"),
        pytest.param(TOP + BELOW, [], id="gone"),
        pytest.param(b"", [], id="an empty page"),
    ],
)
def test_a_family_that_was_seen_before_is_read_as_if_it_were_new(then: bytes, expected: list[float]) -> None:
    finder = Finder(Spec("m"))
    before = finder.latest(TOP + b'm{a="1"} 5\n' + BELOW)
    assert before is not None and before.value == 5
    assert [one.value for one in finder.all(then)] == expected
    assert [one.value for one in Finder(Spec("m")).all(then)] == expected


def test_a_help_text_may_say_what_it_likes() -> None:
    found = Finder(Spec("m")).latest(b"# TYPE m gauge\n# HELP m not a summary\nm 7\n")
    assert found is not None and found.value == 7


def test_a_page_may_end_without_a_line_break() -> None:
    found = Finder(Spec("m")).latest(b"m 7")
    assert found is not None and found.value == 7


def test_the_largest_value_wins_where_the_value_is_a_time() -> None:
    page = b'i{n="old"} 100.5\ni{n="new"} 200.5\ni{n="older"} 50\n'
    found = Finder(Spec("i")).largest(page)
    assert found is not None and found.labels == b'n="new"'


def test_a_family_that_grows_towards_its_start_is_read_whole() -> None:
    finder = Finder(Spec("m"))
    filler = b"# f\n" * 100
    assert finder.latest(filler + b'm{a="2"} 2 5\n') is not None
    found = finder.latest(filler[: -len(b'm{a="1"} 1 9\n')] + b'\nm{a="1"} 1 9\nm{a="2"} 2 5\n')
    assert found is not None and found.value == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="empty means none"),
        pytest.param("vllm:x", Spec("vllm:x"), id="a name"),
        pytest.param("x{a=b}", Spec("x", (("a", "b"),)), id="without quotes"),
        pytest.param('x{b="2", a="1,}"}', Spec("x", (("a", "1,}"), ("b", "2"))), id="with quotes"),
        pytest.param("x{}", Spec("x"), id="empty braces"),
    ],
)
def test_specs(text: str, expected: Spec | None) -> None:
    assert parse_spec(text, where="here") == expected


@pytest.mark.parametrize("text", ["1x", "x{", "x{a}", "x{a=}", "x{a=b c}", "sum(x)", "x{a!=b}"])
def test_bad_specs_name_their_place(text: str) -> None:
    with pytest.raises(UserError, match=r"^engineConfigs\[0\]\.loraSpec: "):
        parse_spec(text, where="engineConfigs[0].loraSpec")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"m{" + b"}a" * 100_000 + b" b c d", id="braces"),
        pytest.param(b'm{a="' + b"\\" * 100_001 + b'"} 1 2 3', id="backslashes"),
        pytest.param(b"m{" + b'a="b",' * 50_000 + b"} 1 2 3", id="labels"),
        pytest.param(b"m " + b"1" * 1_000_000 + b" " + b"1" * 1_000_000, id="digits"),
    ],
)
def test_a_hostile_page_takes_no_time(line: bytes) -> None:
    started = time.process_time()
    assert Finder(Spec("m")).latest(line + b"\n") is None
    assert time.process_time() - started < 1  # 16 KB of braces took 8 s


@pytest.mark.parametrize("value", [b"1e400", b"-1e400", b"NaN", b"+Inf", b"9" * 5000])
def test_numbers_that_no_engine_means_are_no_counts(value: bytes) -> None:
    series = Finder(Spec("m")).latest(b"m " + value + b"\n")
    assert series is not None and count(series.value) is None

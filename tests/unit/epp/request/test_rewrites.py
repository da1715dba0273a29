import random
from collections import Counter

import pytest

from pointsman.epp.request.rewrites import Rewrite, RewriteRule, Rewrites, Target


def rule(*models: str, to: str) -> RewriteRule:
    return RewriteRule(models=models, targets=(Target(model=to),))


def split(**weights: int | None) -> RewriteRule:
    return RewriteRule(models=("m",), targets=tuple(Target(model=m, weight=w) for m, w in weights.items()))


def chosen(rewrites: list[Rewrite], model: str) -> tuple[str, str] | None:
    made = Rewrites()
    made.replace(rewrites)
    found = made.rewrite(model, random=lambda: 0.0)
    return (found.rewrite, found.model) if found else None


@pytest.mark.parametrize(
    ("rewrites", "expected"),
    [
        pytest.param([], None, id="no rules"),
        pytest.param([Rewrite(name="a", rules=(rule("other", to="x"),))], None, id="another model"),
        pytest.param([Rewrite(name="a", rules=(rule("m", to="x"),))], ("a", "x"), id="exact"),
        pytest.param([Rewrite(name="a", rules=(rule(to="x"),))], ("a", "x"), id="generic"),
        pytest.param(
            [Rewrite(name="a", created="2026-01-01T00:00:00Z", rules=(rule(to="x"),)),
             Rewrite(name="b", created="2026-01-02T00:00:00Z", rules=(rule("m", to="y"),))],
            ("b", "y"), id="exact before generic, whatever its age",
        ),
        pytest.param(
            [Rewrite(name="a", created="2026-01-02T00:00:00Z", rules=(rule("m", to="x"),)),
             Rewrite(name="b", created="2026-01-01T00:00:00Z", rules=(rule("m", to="y"),))],
            ("b", "y"), id="the older resource",
        ),
        pytest.param(
            [Rewrite(name="a", rules=(rule("m", to="x"), rule("m", to="y")))], ("a", "x"), id="the first rule"
        ),
    ],
)  # fmt: skip
def test_precedence(rewrites: list[Rewrite], expected: tuple[str, str] | None) -> None:
    assert chosen(rewrites, "m") == expected


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param({"a": 70, "b": 30}, {"a": 700, "b": 300}, id="by weight"),
        pytest.param({"a": None, "b": None}, {"a": 500, "b": 500}, id="without weights evenly"),
        pytest.param({"a": None, "b": 5}, {"b": 1000}, id="mixed: only those with weights"),
    ],
)
def test_shares(weights: dict[str, int | None], expected: dict[str, int]) -> None:
    made, draw = Rewrites(), random.Random(7)
    made.replace([Rewrite(name="r", rules=(split(**weights),))])
    counts: Counter[str] = Counter()
    for _ in range(1000):
        found = made.rewrite("m", random=draw.random)
        assert found is not None
        counts[found.model] += 1
    assert set(counts) == set(expected)
    assert all(abs(counts[model] - count) < 60 for model, count in expected.items())


def test_the_last_target_is_reached() -> None:
    made = Rewrites()
    made.replace([Rewrite(name="r", rules=(split(a=1, b=1),))])
    found = made.rewrite("m", random=lambda: 0.9999999)
    assert found is not None and found.model == "b"
    assert made.models == {"m", "a", "b"}

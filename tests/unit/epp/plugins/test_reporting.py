"""What is told of requests: to the proxy in numbers, to fairness in a name."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import make, request

from pointsman.core.values import check
from pointsman.epp.plugins.expressions import BadExpression, parse
from pointsman.epp.plugins.reporting import ReporterParameters

USAGE = {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 3}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("usage.prompt_tokens + usage.completion_tokens", 17),
        ("usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens * 2", 1),
        ("(has(usage.prompt_tokens) ? usage.prompt_tokens : 0) + (has(usage.x) ? usage.x : 5)", 12),
        ("has(usage.prompt_tokens) && !has(usage.x) || false", True),
        ("usage.total_tokens >= 17 && usage.total_tokens != 18", True),
        ("int(usage.total_tokens / 2)", 8),
        ("-usage.prompt_tokens % 4", -7 % 4),
        ("has(usage.a.b.c)", False),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert parse(text)({"usage": USAGE}) == value


@pytest.mark.parametrize(
    "text",
    [
        *["", "usage.", "1 +", "request.x", "f(1)", "usage.a usage.b", "(1", "a ? b", "'x'", "(" * 100, "1" * 5000],
        *["!" * 60 + "true", "-" * 4000 + "1", "1" + "+1" * 2000],
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        parse(text)


def reporter(**attribute: Any) -> Any:
    key = {"name": "x-cost"}
    return make("request-attribute-reporter", attributes=[{"key": key, **attribute}])


def test_the_proxy_is_told_a_number() -> None:
    plugin = reporter(expression="usage.prompt_tokens + usage.completion_tokens")
    assert plugin.report(request(), USAGE) == {"envoy.lb": {"x-cost": 17.0}}
    empty = reporter(expression="1", key={"name": "n", "namespace": ""})
    assert empty.report(request(), USAGE) == {"envoy.lb": {"n": 1.0}}, "nothing is left out, too"


def test_nothing_is_told_where_the_condition_fails_or_something_is_missing() -> None:
    assert reporter(expression="1", condition="has(usage.x)").report(request(), USAGE) == {}
    assert reporter(expression="usage.x").report(request(), USAGE) == {}
    assert reporter(expression="1 / 0").report(request(), USAGE) == {}


def test_a_bad_expression_is_a_mistake_in_the_file() -> None:
    raw = {"attributes": [{"key": {"name": "n"}, "expression": "usage +"}]}
    problem, *_ = check(ReporterParameters, raw, path="p").problems
    assert str(problem).startswith("p.attributes[0].expression: cannot be read: ")


@pytest.mark.parametrize(
    ("headers", "who"),
    [
        ({"x-claude-code-session-id": "c"}, "c"),
        ({"session_id": "s", "x-session-affinity": "a"}, "a"),
        ({"x-own": "o", "session-id": "s"}, "o"),
        ({}, ""),
    ],
)
def test_whose_request_it_is(headers: dict[str, str], who: str) -> None:
    plugin = make("agent-identity", additionalSessionHeaders=["X-Own"])
    assert plugin.identify(request(headers=headers)) == who

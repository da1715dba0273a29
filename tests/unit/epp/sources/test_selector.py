import pytest

from pointsman.core.errors import UserError
from pointsman.epp.sources.selector import Selector, match_labels, parse_selector

LABELS = {"app": "vllm", "tier": "prod", "llm-d.ai/role": "decode", "empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=vllm", True),
        ("app==vllm", True),
        ("app=other", False),
        ("app!=other", True),
        ("missing!=x", True),
        ("missing=x", False),
        ("app in (vllm, sglang)", True),
        ("app in (sglang)", False),
        ("app notin (sglang)", True),
        ("missing notin (a)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("empty=", True),
        ("app=vllm,tier in (prod,test),!missing", True),
        ("app=vllm, tier=test", False),
        ("llm-d.ai/role=decode", True),
    ],
)
def test_requirements(text: str, expected: bool) -> None:
    assert parse_selector(text, where="--endpoint-selector").matches(LABELS) is expected


@pytest.mark.parametrize("text", ["", "app=a b", "=x", "app in ()x", "app=a,", "app in a", "a=b,,c=d", "-a=b"])
def test_what_is_not_a_selector_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError, match=r"^--endpoint-selector: "):
        parse_selector(text, where="--endpoint-selector")


def test_match_labels() -> None:
    assert match_labels({"app": "vllm", "tier": "prod"}).matches(LABELS)
    assert not match_labels({"app": "vllm", "tier": "test"}).matches(LABELS)
    assert Selector().matches({})

import pytest

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Member
from pointsman.epp.sources.models import ModelsQuestion, parse_models

BODY = b'{"object":"list","data":[{"id":"base","object":"model","root":"x"},{"id":"lora","parent":"base"}]}'


@pytest.mark.parametrize(
    ("body", "models"),
    [
        pytest.param(BODY, {"base": "", "lora": "base"}, id="vLLM"),
        pytest.param(b'{"data":[]}', {}, id="none"),
        pytest.param(b'{"data":[{"id":7}]}', None, id="not a name"),
        pytest.param(b"[]", None, id="not an object"),
        pytest.param(b"<html>", None, id="not JSON"),
        pytest.param(b'{"data":[{"id":"\xff"}]}', None, id="not UTF-8"),
    ],
)
def test_names(body: bytes, models: dict[str, str] | None) -> None:
    assert parse_models(body) == models


def test_a_bad_answer_is_counted_and_changes_nothing() -> None:
    tally, member = Polls(), Member(Endpoint(name="a", address="10.0.0.1", port=80))
    take = ModelsQuestion(tally=tally).takes(member)
    assert take(BODY, asked_at=1.0, mark=(0, 0))
    assert not take(b"oops", asked_at=2.0, mark=(0, 0))
    assert member.models == {"base", "lora"}
    assert member.view.metrics.adapters == {"lora": "base"}
    assert tally.extract_errors["models-data-source", "models-data-extractor"] == 1

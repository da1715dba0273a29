"""The multimodal embeddings cache: what is remembered of picks, and what it is worth."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint, make, request

from pointsman.core.values import check
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.plugins.api import ENCODER_MATCHES, EncoderMatches, Key, Picked, Results
from pointsman.epp.plugins.embeddings import EMBEDDINGS_PRODUCER, EmbeddingsCacheParameters
from pointsman.epp.request.request import MediaItem, Prompt, Request

KEY = Key[EncoderMatches](ENCODER_MATCHES, producer=EMBEDDINGS_PRODUCER)
A, B = endpoint("a"), endpoint("b")


def showing(*hashes: int, size: int = 1) -> Request:
    return request(prompt=Prompt(tokens=1, items=[MediaItem(hash=each, size=size) for each in hashes]))


def sent(producer: Any, seen: Request, *names: str, profile: str = "default") -> None:
    producer.before_send(seen, {profile: picked(*names)}, profile)


def picked(*names: str) -> Picked:
    views = [endpoint(name) for name in names]
    return Picked(endpoints=views, candidates=views, scores=[1.0] * len(views))


def matches(producer: Any, seen: Request) -> EncoderMatches:
    found: Mapping[str, EncoderMatches] = producer.produce(seen, [A, B])
    return found[KEY.name]


@pytest.mark.parametrize(
    ("total", "matched", "expected"),
    [
        pytest.param(2, {"a:8000": 1}, [0.5, 0], id="one of two"),
        pytest.param(4, {"a:8000": 4, "b:8000": 1}, [1, 0.25], id="by size"),
        pytest.param(3, {}, [0, 0], id="nobody has any"),
        pytest.param(0, {}, [0, 0], id="nothing to have"),
    ],
)
def test_scores(total: int, matched: dict[str, int], expected: list[float]) -> None:
    seen = request(attributes={KEY.name: EncoderMatches(total=total, matched=matched)})
    assert make("mm-embeddings-cache-scorer").score(seen, [A, B]) == expected


def test_without_matches_everyone_scores_0() -> None:
    assert make("mm-embeddings-cache-scorer").score(request(), [A, B]) == [0, 0]


def test_what_was_sent_is_there() -> None:
    producer = make(EMBEDDINGS_PRODUCER)
    sent(producer, showing(1, 2), "a", "b")
    found = matches(producer, showing(1, 2, 3))
    assert (found.total, found.matched) == (3, {"a:8000": 2}), "the second endpoint is only for when the first fails"


def test_sizes_count() -> None:
    producer = make(EMBEDDINGS_PRODUCER)
    sent(producer, showing(1, size=10), "a")
    found = matches(producer, showing(1, 2, size=10))
    assert (found.total, found.matched) == (20, {"a:8000": 10})


def test_an_encode_stage_has_it_and_not_who_decodes() -> None:
    producer = make(EMBEDDINGS_PRODUCER)
    results: Results = {"decode": picked("a"), "encode": picked("b", "c")}
    producer.before_send(showing(1), results, "decode")
    assert matches(producer, showing(1)).matched == {"b:8000": 1}
    producer.before_send(showing(2), {"decode": picked("a"), "encode": None}, "decode")
    assert matches(producer, showing(2)).matched == {"a:8000": 1}


def test_the_oldest_is_forgotten_first_and_use_makes_young() -> None:
    producer = make(EMBEDDINGS_PRODUCER, cacheSizeInMBPerServer=4)
    for seen in (showing(1), showing(2), showing(1), showing(3)):
        sent(producer, seen, "a")
    assert [matches(producer, showing(each)).matched for each in (1, 2, 3)] == [{"a:8000": 1}, {}, {"a:8000": 1}]


def test_looking_does_not_make_young() -> None:
    producer = make(EMBEDDINGS_PRODUCER, cacheSizeInMBPerServer=4)
    sent(producer, showing(1), "a")
    sent(producer, showing(2), "a")
    matches(producer, showing(1))
    sent(producer, showing(3), "a")
    assert matches(producer, showing(1)).matched == {}


@pytest.mark.parametrize(("megabytes", "entries"), [(None, 2048), (2048, 1024), (4, 2), (1, 1)])
def test_capacity(megabytes: int | None, entries: int) -> None:
    parameters: dict[str, Any] = {} if megabytes is None else {"cacheSizeInMBPerServer": megabytes}
    producer = make(EMBEDDINGS_PRODUCER, **parameters)
    sent(producer, showing(*range(entries + 5)), "a")
    assert matches(producer, showing(*range(entries + 5))).matched == {"a:8000": entries}


def test_who_is_gone_is_forgotten() -> None:
    producer = make(EMBEDDINGS_PRODUCER)
    sent(producer, showing(1), "a")
    sent(producer, showing(1), "b")
    producer.on_endpoints(frozenset(("b:8000",)))
    assert matches(producer, showing(1)).matched == {"b:8000": 1}


@pytest.mark.parametrize("seen", [request(), showing()], ids=["no prompt", "no media"])
def test_without_media_nothing_is_said_or_remembered(seen: Request) -> None:
    producer = make(EMBEDDINGS_PRODUCER)
    sent(producer, seen, "a")
    assert producer.produce(seen, [A, B]) == {}


def test_a_cache_of_nothing_is_refused() -> None:
    assert check(EmbeddingsCacheParameters, {"cacheSizeInMBPerServer": 0}, path="parameters").problems


def test_the_same_image_goes_where_it_went() -> None:
    config = (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: mm-embeddings-cache-scorer}]\n"
    )
    scheduler = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(config)).scheduler
    views = [endpoint(f"e{at}") for at in range(8)]
    needs = scheduler.needs(views)
    assert needs.media

    def ask(url: str) -> Request:
        content = [{"type": "image_url", "image_url": {"url": url}}]
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
        return request(prompt=BodyReading(body, needs=needs).prompt())

    first = scheduler.decide(ask("http://x/1.png"), views)
    scheduler.commit(first)
    again = [scheduler.decide(ask("http://x/1.png"), views) for _ in range(20)]
    assert {each.picked.first.name for each in again} == {first.picked.first.name}
    assert set(scheduler.decide(ask("http://x/2.png"), views).picked.scores) == {0}

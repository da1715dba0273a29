"""A pool's metrics as a page, and what is made of it."""

import pytest

from pointsman.core.values import check
from pointsman.epp.bbr.collector import CollectorParameters, Unread, page_of, read_page
from pointsman.epp.bbr.models import Models, PoolLoad

PAGE = b"""\
# HELP vllm:kv_cache_usage_perc x
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{pod="a"} 0.25 1700000000000
vllm:kv_cache_usage_perc{pod="b"} 0.75
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{pod="a"} 3
vllm:num_requests_waiting{pod="b"} 4.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 9
# TYPE other histogram
other_bucket{le="+Inf"} 1

"""


def test_of_several_series_the_fullest_counts_and_the_sum_of_requests() -> None:
    found = read_page(PAGE, CollectorParameters(), at=7.0)
    assert found == PoolLoad(kv_usage=0.75, cpu_usage=0.0, waiting=7, running=9, at=7.0)


def test_other_names() -> None:
    given = check(
        CollectorParameters, {"queueDepthMetric": "q", "cpuCacheUsageMetric": "c", "runningRequestsMetric": ""}, path=""
    )
    assert given.value is not None
    found = read_page(PAGE + b"q 5\nc 0.5\n", given.value, at=0.0)
    assert (found.waiting, found.cpu_usage, found.running) == (5, 0.5, 9)


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf", b"1e300", b"-3"])
def test_what_is_no_count_counts_nothing(value: bytes) -> None:
    page = b'vllm:num_requests_waiting 2\nvllm:num_requests_waiting{pod="b"} ' + value + b"\n"
    assert read_page(page, CollectorParameters(), at=0.0).waiting == 2


def test_an_empty_page_is_one() -> None:
    assert read_page(b"", CollectorParameters(), at=0.0).running == 0


@pytest.mark.parametrize("page", [b"<html>", b'{"a": 1}', PAGE + b"9lives 1\n", b"vllm:num_requests_waiting\n"])
def test_what_is_no_page_is_said_to_be_none(page: bytes) -> None:
    with pytest.raises(Unread) as caught:
        read_page(page, CollectorParameters(), at=0.0)
    assert caught.value.reason == "parse"


def test_where_a_url_leads() -> None:
    page = page_of("http://prom.svc:9090/federate?match[]=%7Bpool%3D%22a%22%7D")
    assert (page.address.authority, page.target, page.secure) == (
        "prom.svc:9090",
        "/federate?match[]=%7Bpool%3D%22a%22%7D",
        False,
    )
    assert page_of("https://prom").address.port == 443
    assert page_of("http://prom").target == "/"


@pytest.mark.parametrize("url", ["prom:9090", "ftp://prom/", "http://", "http://prom:0", "http://p/a b"])
def test_a_url_that_leads_nowhere(url: str) -> None:
    with pytest.raises(Unread) as caught:
        page_of(url)
    assert caught.value.reason == "request_build"


@pytest.mark.parametrize(
    "parameters", [{"interval": "0s"}, {"timeout": "-1s"}, {"maxConcurrent": -1}, {"utilizationMetric": "no name"}]
)
def test_parameters_that_cannot_work(parameters: dict[str, object]) -> None:
    assert check(CollectorParameters, parameters, path="").problems


def test_the_list_of_models_says_where_metrics_are() -> None:
    models = Models()
    models.take('{"models": [{"name": "a", "metricsURL": "http://a/metrics"}, {"name": "b"}]}', name="f")
    assert [each.metrics_url for each in models.candidates] == ["http://a/metrics", ""]

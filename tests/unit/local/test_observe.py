import pytest

from pointsman.local.observe import address, gauge
from pointsman.render.envoy.addresses import Address

METRICS = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="a"} 2.0
vllm:num_requests_running{model_name="b"} 1
vllm:num_requests_running_max{model_name="a"} 99
vllm:num_requests_waiting{model_name="a"} 0
"""


def test_gauge_is_summed_over_its_label_sets_and_not_mixed_up_with_a_longer_name() -> None:
    assert gauge(METRICS, "running") == 3
    assert gauge(METRICS, "waiting") == 0


def test_gauge_that_is_not_there_is_not_zero() -> None:
    assert gauge(b"", "running") is None


@pytest.mark.parametrize("text", ["127.0.0.1:80", "http://127.0.0.1:80"])
def test_address(text: str) -> None:
    assert address(text) == Address("127.0.0.1", 80)


def test_address_of_ipv6() -> None:
    assert address("http://[::1]:80") == Address("::1", 80)

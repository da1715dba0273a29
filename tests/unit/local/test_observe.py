from pointsman.local.observe import gauge

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

from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.families import Family
from pointsman.epp.metrics.pool import pool_families, source_families
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool, Reservation
from pointsman.epp.pool.view import EndpointMetrics


def shown(families: list[Family]) -> dict[tuple[str, str], float]:
    """Return values by name and last label value."""
    text = "".join(line for family in families for line in family.render())
    return {
        (sample.name, "/".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_pool_as_it_is() -> None:
    pool = Pool(clock=lambda: 10.0)
    pool.replace([Endpoint(name=f"pod-{at}", namespace="ns", address=f"10.0.0.{at}", port=80) for at in range(4)])
    for at, member in enumerate(pool.members[:3]):
        updated = 9.5 if at < 2 else 1.0  # the third is stale
        metrics = EndpointMetrics(waiting=2 * at, running=1, kv_usage=0.5, updated_at=updated)
        member.scraped(metrics, attributes={}, mark=member.mark())
    Reservation(pool.members[3], tokens=7)
    for _ in range(2):
        pool.members[0].judge(ok=False, connection=True)
    found = shown([*pool_families(pool, name="p", clock=lambda: 10.0, staleness=2.0)])
    for prefix in ("llm_d_epp", "inference_pool"):
        assert found[f"{prefix}_average_queue_size", "p"] == 1
        assert found[f"{prefix}_std_dev_queue_size", "p"] == 2**0.5, "of the sample"
        assert found[f"{prefix}_average_kv_cache_utilization", "p"] == 0.5
        assert found[f"{prefix}_average_running_requests", "p"] == 1
    assert found["llm_d_epp_ready_endpoints", "p"] == found["inference_pool_ready_pods", "p"] == 4
    assert found["inference_pool_per_pod_queue_size", "p/pod-1"] == 2
    assert found["llm_d_epp_inflight_requests", "pod-3/ns"] == 1
    assert found["llm_d_epp_inflight_tokens", "pod-3/ns"] == 7
    assert found["pointsman_metrics_age_seconds", "pod-0/ns"] == 0.5
    assert ("pointsman_metrics_age_seconds", "pod-3/ns") not in found
    assert found["pointsman_endpoint_ejected", "pod-0/ns"] == 1
    assert found["pointsman_ejections_total", ""] == 1


def test_without_metrics_there_are_no_averages() -> None:
    pool = Pool()
    found = shown([*pool_families(pool, name="p", clock=lambda: 10.0, staleness=2.0)])
    assert found == {
        ("llm_d_epp_ready_endpoints", "p"): 0,
        ("inference_pool_ready_pods", "p"): 0,
        ("pointsman_ejections_total", ""): 0,
    }


def test_what_went_wrong_with_sources() -> None:
    tally = Polls()
    tally.poll_errors["metrics-data-source"] += 2
    tally.extract_errors["metrics-data-source", "core-metrics-extractor"] += 3
    found = shown([*source_families(tally)])
    assert found["llm_d_epp_datalayer_poll_errors_total", "metrics-data-source"] == 2
    assert found["llm_d_epp_datalayer_extract_errors_total", "metrics-data-source/core-metrics-extractor"] == 3

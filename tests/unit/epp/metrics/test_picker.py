"""What we write is what the official parser reads, under every name that llm-d has had."""

import asyncio
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pointsman.core.families import Counter, Gauge, Histogram, Limited, ReadHistogram, escape, names, number
from pointsman.epp.metrics.picker import PickerMetrics


def samples(page: bytes) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def value(page: bytes, name: str, **labels: str) -> float:
    (one,) = [sample for sample in samples(page)[name] if sample.labels == labels]
    return one.value


@pytest.fixture
def metrics() -> PickerMetrics:
    made = PickerMetrics()
    for fairness in ("a", "b"):
        row = made.row(model="m", target="t", fairness=fairness, priority=2)
        row.began()
        row.sized(1000)
        row.first_byte(seconds=0.1, streaming=True)
        row.used(prompt=7, output=10, cached=4)
        row.paced(seconds=1.0, output=10, first=0.1)
        row.ended(seconds=1.0, size=300)
    made.row(model="m", target="t", fairness="a", priority=2).failed("ModelServerError")
    return made


def test_a_request_is_counted_by_all_its_labels(metrics: PickerMetrics) -> None:
    page = metrics.render()
    labels = {"model_name": "m", "target_model_name": "t", "fairness_id": "a", "priority": "2"}
    assert value(page, "llm_d_epp_request_total", **labels) == 1
    assert value(page, "llm_d_epp_request_running", **labels) == 0
    assert value(page, "llm_d_epp_request_duration_seconds_count", **labels) == 1
    assert value(page, "llm_d_epp_request_duration_seconds_bucket", **labels, le="0.8") == 0
    assert value(page, "llm_d_epp_request_duration_seconds_bucket", **labels, le="1") == 1
    assert value(page, "llm_d_epp_request_streaming_tpot_seconds_sum", **labels) == pytest.approx(0.1)
    assert value(page, "llm_d_epp_request_ttft_seconds_count", **labels, streaming="true") == 1
    assert value(page, "llm_d_epp_request_error_total", **labels, error_code="ModelServerError") == 1


@pytest.mark.parametrize("prefix", ["inference_objective"])
def test_old_names_show_sums_over_labels_that_they_lack(metrics: PickerMetrics, prefix: str) -> None:
    page, labels = metrics.render(), {"model_name": "m", "target_model_name": "t"}
    assert value(page, f"{prefix}_request_total", **labels, priority="2") == 2
    assert value(page, f"{prefix}_request_error_total", **labels, error_code="ModelServerError") == 1
    assert value(page, f"{prefix}_running_requests", model_name="m") == 0
    for name, total in (
        ("request_duration_seconds", 2.0),
        ("request_sizes", 2000),
        ("response_sizes", 600),
        ("input_tokens", 14),
        ("output_tokens", 20),
        ("prompt_cached_tokens", 8),
        ("normalized_time_per_output_token_seconds", 0.2),
        ("request_ttft_seconds", 0.2),
    ):
        assert value(page, f"{prefix}_{name}_sum", **labels) == pytest.approx(total)
        assert value(page, f"{prefix}_{name}_count", **labels) == 2
        assert value(page, f"{prefix}_{name}_bucket", **labels, le="+Inf") == 2


def test_picks_rewrites_and_prefixes() -> None:
    metrics = PickerMetrics()
    metrics.scheduled(seconds=0.00015, target_model="t", endpoint=("pod-0", "ns", 8000))
    metrics.not_scheduled(seconds=1.0, target_model="t")
    metrics.rewrote(rewrite="r", model="m", target="t")
    ratio, size = metrics.lookups("p", kind="approx")
    ratio.observe(0.5)
    size.observe(64)
    page = metrics.render()
    assert value(page, "llm_d_epp_scheduler_e2e_duration_seconds_count") == 2
    assert value(page, "inference_extension_scheduler_e2e_duration_seconds_bucket", le="0.0002") == 1
    attempt = {"status": "success", "target_model_name": "t", "namespace": "ns", "port": "8000"}
    assert value(page, "llm_d_epp_scheduler_attempts_total", **attempt, endpoint_name="pod-0") == 1
    assert value(page, "inference_extension_scheduler_attempts_total", **attempt, pod_name="pod-0") == 1
    assert (
        value(page, "llm_d_epp_prefix_indexer_hit_ratio_bucket", plugin_name="p", plugin_type="approx", le="0.5") == 1
    )


def test_a_thousand_models_then_other() -> None:
    metrics = PickerMetrics()
    metrics.exempt_models(["ours"])
    for at in range(1200):
        metrics.row(model=f"m{at}", target="m0").began()
    metrics.row(model="ours", target="ours").began()
    metrics.row(model="x" * 10_000, target="m0").began()
    shown = samples("".join(metrics.total.render()).encode())["llm_d_epp_request_total"]
    models = {sample.labels["model_name"] for sample in shown}
    assert len(models) == 1000 + 2
    assert {"m0", "m999", "other", "ours"} <= models
    (other,) = [sample.value for sample in shown if sample.labels["model_name"] == "other"]
    assert other == 201


async def test_a_long_page_lets_requests_through() -> None:
    metrics, turns = PickerMetrics(), 0
    for at in range(60):
        metrics.row(model=f"m{at}", target="t").began()
        metrics.row(model=f"m{at}", target="t").sized(at)
        metrics.row(model=f"m{at}", target="t").used(prompt=1, output=1, cached=1)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            metrics.row(model=f"late-{turns}", target="t").began()  # the page may grow under our hands
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(others())
        page = await metrics.render_aside()
        task.cancel()
    assert turns > 3
    assert value(page, "inference_objective_running_requests", model_name="m59") == 1


def test_no_family_grows_without_bound() -> None:
    counter = Counter(names("c", ("a", "b")), "Counts.")
    histogram = Histogram(names("h", ("a",)), "Spreads.", bounds=(1,))
    for at in range(5000):
        counter.add((str(at), "x"))
        histogram.cell((str(at),)).observe(0.5)
    assert len(counter.cells) == len(histogram.cells) == 4097
    assert counter.cells["other", "other"] == 5000 - 4096
    assert histogram.cells["other",].counts[0] == 5000 - 4096


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "é{},="])
def test_label_values_survive(text: str) -> None:
    counter = Counter(names("c_total", ("a",)), "Counts.")
    counter.add((text,))
    assert value("".join(counter.render()).encode(), "c_total", a=text) == 1
    assert "\n" not in escape(text)


@pytest.mark.parametrize(("figure", "text"), [(1, "1"), (0.5, "0.5"), (math.inf, "+Inf"), (-math.inf, "-Inf")])
def test_numbers(figure: float, text: str) -> None:
    assert number(figure) == text


def test_a_gauge_is_read_when_asked() -> None:
    now = [1.0]
    gauge = Gauge(names("g", ()), "Is.", read=lambda: {(): now[0]})
    now[0] = 2.0
    assert list(gauge.render())[-1] == "g 2\n"


def test_a_distribution_that_someone_else_keeps() -> None:
    read = ReadHistogram(
        names("h", ("a",), ("old", ("a",))), "Spreads.", bounds=(1, 2), read=lambda: [(("x",), [1, 2, 3], 9.5)]
    )
    for _ in range(2):  # reading twice adds nothing
        page = "".join(read.render()).encode()
        assert value(page, "h_bucket", a="x", le="2") == 3
        assert value(page, "old_count", a="x") == 6
        assert value(page, "old_sum", a="x") == 9.5


def test_limits_let_known_values_through() -> None:
    limited = Limited(1)
    assert [limited(value) for value in ("a", "b", "a")] == ["a", "other", "a"]


def edges(page: bytes, name: str) -> list[float]:
    return [float(sample.labels["le"]) for sample in samples(page)[f"{name}_bucket"]][:-1]


def test_the_buckets_are_those_of_llm_d() -> None:
    metrics = PickerMetrics()
    row = metrics.row(model="m", target="t")
    row.began()
    row.first_byte(seconds=1.0, streaming=True)
    row.gap(0.1)
    row.paced(seconds=3.0, output=3, first=1.0)
    page = metrics.render()
    assert edges(page, "llm_d_epp_request_ttft_seconds") == [
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120,
    ]  # fmt: skip
    assert edges(page, "inference_objective_request_ttft_seconds")[-3:] == [1800, 2700, 3600]
    assert edges(page, "llm_d_epp_request_streaming_tpot_seconds") == [
        0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2,
    ]  # fmt: skip
    assert edges(page, "inference_objective_request_tpot_seconds")[-3:] == [180, 270, 360]
    assert edges(page, "llm_d_epp_request_streaming_itl_seconds")[:2] == [0.001, 0.005]
    counted = {sample.labels["le"]: sample.value for sample in samples(page)["llm_d_epp_request_ttft_seconds_bucket"]}
    assert (counted["0.8"], counted["1"], counted["+Inf"]) == (0, 1, 1)


def test_names_that_no_release_shows_are_not_shown() -> None:
    assert b"llm_d_router_epp" not in PickerMetrics().render()

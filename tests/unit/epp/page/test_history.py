"""Points of the plots: differences of what `/metrics` shows, read as Prometheus reads them."""

import pytest

from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.page.history import KEPT, History, Sample, fill, point, quantile

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("counts", "q", "value"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 0, 0, 0], 0.5, 0.5),
        ([0, 10, 0, 0], 0.5, 1.5),
        ([5, 5, 0, 0], 0.9, 1.8),
        ([1, 0, 1, 0], 0.99, 3.96),
        ([0, 0, 0, 3], 0.5, 4.0),
        ([0, 4, 0, 0], 1.0, 2.0),
    ],
)
def test_quantiles_are_read_as_prometheus_reads_them(counts: list[int], q: float, value: float | None) -> None:
    found = quantile(counts, bounds=BOUNDS, q=q)
    assert found == (None if value is None else pytest.approx(value))


def sampled(metrics: PickerMetrics, *, at: float, picked: int) -> Sample:
    sample = Sample(at=at, picked=picked, errors=sum(metrics.errors.cells.values()))
    for _ in fill(sample, metrics):
        pass
    return sample


def test_a_point_is_what_happened_between_two_samples() -> None:
    metrics = PickerMetrics()
    one, two = metrics.row(model="a", target="a"), metrics.row(model="b", target="b")
    one.began()
    one.first_byte(seconds=3.5, streaming=True)
    before = sampled(metrics, at=100.0, picked=1)
    for row in (one, two):
        row.began()
        row.first_byte(seconds=0.3, streaming=row is one)
        row.ended(seconds=0.9, size=10)
        row.used(prompt=100, output=5, cached=25)
        row.failed("ModelServerError")
    metrics.lookups("p", kind="k")[0].observe(0.5)
    made = point(before, sampled(metrics, at=105.0, picked=3), bounds=metrics.duration.bounds)
    assert (made.at, made.rate, made.errors) == (105.0, 0.4, 0.4)
    assert made.first_token[0] == pytest.approx(0.3) and made.duration[0] == pytest.approx(0.9)
    assert (made.expected, made.cached) == (0.5, 0.25)


def test_seconds_in_which_nothing_happened_have_rates_and_nothing_else() -> None:
    metrics = PickerMetrics()
    history = History(bounds=metrics.duration.bounds)
    assert history.add(sampled(metrics, at=0.0, picked=0)) is None
    made = history.add(sampled(metrics, at=5.0, picked=0))
    assert made is not None
    assert (made.rate, made.first_token, made.expected, made.cached) == (0.0, (None, None, None), None, None)


def test_the_history_is_bounded() -> None:
    metrics = PickerMetrics()
    history = History(bounds=metrics.duration.bounds)
    for at in range(2 * KEPT):
        history.add(Sample(at=at, picked=at, errors=0))
    assert (len(history.points), history.points[-1].at, KEPT * 5) == (KEPT, 2 * KEPT - 1, 15 * 60)


def test_many_models_are_added_little_by_little() -> None:
    metrics = PickerMetrics()
    for number in range(600):
        metrics.row(model=f"m{number}", target="t").ended(seconds=1.0, size=1)
    sample = Sample(at=0.0, picked=0, errors=0)
    steps = sum(1 for _ in fill(sample, metrics))
    assert sample.duration.count == 600 and steps > 6

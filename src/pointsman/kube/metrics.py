"""Metrics under controller-runtime's names, so that existing dashboards and alerts for operators fit.

Owns the names and labels; values come from the queue and the controllers. One page per runtime, none global.
"""

from collections.abc import Callable

from pointsman.core.families import Counter, Family, Gauge, Histogram, Labels, names

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CONTROLLER: Labels = ("controller",)
_QUEUE: Labels = ("controller", "name")

Readings = dict[Labels, Callable[[], float]]
"""Values that are read when someone asks, by their labels."""


class RuntimeMetrics:
    """The series of one runtime."""

    def __init__(self) -> None:
        self._families: list[Family] = []
        self.reconciles = self._counter(
            "controller_runtime_reconcile_total", "Reconciliations by result", ("controller", "result")
        )
        self.errors = self._counter(
            "controller_runtime_reconcile_errors_total", "Reconciliations that failed", _CONTROLLER
        )
        self.terminal = self._counter(
            "controller_runtime_terminal_reconcile_errors_total", "Failures not retried", _CONTROLLER
        )
        self.timeouts = self._counter(
            "controller_runtime_reconcile_timeouts_total", "Reconciliations cancelled for taking too long", _CONTROLLER
        )
        self.seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Length of reconciliations", _CONTROLLER
        )
        self.workers = self._counter(
            "controller_runtime_max_concurrent_reconciles", "Workers of a controller", _CONTROLLER, kind="gauge"
        )
        self.active = self._counter("controller_runtime_active_workers", "Workers at work", _CONTROLLER, kind="gauge")
        self.depth = self._readings("workqueue_depth", "Keys in line", _QUEUE)
        self.adds = self._counter("workqueue_adds_total", "Keys that entered the line", _QUEUE)
        self.waited = self._histogram("workqueue_queue_duration_seconds", "Time in line", _QUEUE)
        self.worked = self._histogram("workqueue_work_duration_seconds", "Time in work", _QUEUE)
        self.retries = self._counter("workqueue_retries_total", "Keys sent back after a failure", _QUEUE)
        self.unfinished = self._readings("workqueue_unfinished_work_seconds", "Summed age of work in progress", _QUEUE)
        self.longest = self._readings(
            "workqueue_longest_running_processor_seconds", "Age of the oldest work in progress", _QUEUE
        )
        self.requests = self._counter("rest_client_requests_total", "Answers of the API server", ("code", "method"))
        self.leader = self._readings("leader_election_master_status", "1 while this replica leads", ("name",))

    def render(self) -> bytes:
        """Return the page."""
        return "".join(line for family in self._families for line in family.render()).encode()

    def _counter(self, name: str, text: str, labels: Labels, *, kind: str = "counter") -> Counter:
        made = Counter(names(name, labels), text, kind=kind)
        self._families.append(made)
        return made

    def _histogram(self, name: str, text: str, labels: Labels) -> Histogram:
        made = Histogram(names(name, labels), text, bounds=_SECONDS)
        self._families.append(made)
        return made

    def _readings(self, name: str, text: str, labels: Labels) -> Readings:
        readings: Readings = {}
        self._families.append(
            Gauge(names(name, labels), text, read=lambda: {key: value() for key, value in readings.items()})
        )
        return readings

"""Metrics under controller-runtime's names, so that existing dashboards and alerts for operators fit.

Owns the names and labels; values come from the queue and the controllers. One registry per runtime, none
global.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RuntimeMetrics:
    """The series of one runtime."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        queue = ["name", "controller"]

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, labels: list[str]) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, labels: list[str]) -> Histogram:
            return Histogram(name, text, labels, buckets=_SECONDS, registry=self.registry)

        self.reconciles = counter(
            "controller_runtime_reconcile_total", "Reconciliations by result", ["controller", "result"]
        )
        self.errors = counter(
            "controller_runtime_reconcile_errors_total", "Reconciliations that failed", ["controller"]
        )
        self.terminal = counter(
            "controller_runtime_terminal_reconcile_errors_total", "Failures not retried", ["controller"]
        )
        self.timeouts = counter(
            "controller_runtime_reconcile_timeouts_total",
            "Reconciliations cancelled for taking too long",
            ["controller"],
        )
        self.seconds = histogram(
            "controller_runtime_reconcile_time_seconds", "Length of reconciliations", ["controller"]
        )
        self.workers = gauge("controller_runtime_max_concurrent_reconciles", "Workers of a controller", ["controller"])
        self.active = gauge("controller_runtime_active_workers", "Workers at work", ["controller"])
        self.depth = gauge("workqueue_depth", "Keys in line", queue)
        self.adds = counter("workqueue_adds_total", "Keys that entered the line", queue)
        self.waited = histogram("workqueue_queue_duration_seconds", "Time in line", queue)
        self.worked = histogram("workqueue_work_duration_seconds", "Time in work", queue)
        self.retries = counter("workqueue_retries_total", "Keys sent back after a failure", queue)
        self.unfinished = gauge("workqueue_unfinished_work_seconds", "Summed age of work in progress", queue)
        self.longest = gauge("workqueue_longest_running_processor_seconds", "Age of the oldest work in progress", queue)
        self.requests = counter("rest_client_requests_total", "Answers of the API server", ["code", "method"])
        self.leader = gauge("leader_election_master_status", "1 while this replica leads", ["name"])

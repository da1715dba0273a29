"""The names that dashboards for operators know."""

from pointsman.kube.metrics import RuntimeMetrics

NAMES = (
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "rest_client_requests_total",
    "leader_election_master_status",
)


def test_controller_runtimes_names() -> None:
    text = RuntimeMetrics().render().decode()
    assert [name for name in NAMES if f"# TYPE {name} " not in text] == []


def test_two_runtimes_in_one_process_do_not_meet() -> None:
    one, two = RuntimeMetrics(), RuntimeMetrics()
    one.errors.add(("x",))
    line = b'controller_runtime_reconcile_errors_total{controller="x"} 1\n'
    assert line in one.render() and line not in two.render()

"""The operator's process, as far as it shows without a cluster."""

from pathlib import Path

import httpx2
import pytest

from pointsman.api.simulator import SIMULATOR_DEPLOYMENT
from pointsman.core.errors import UserError
from pointsman.kube import Client, Kind
from pointsman.kube.reflector import State
from pointsman.operator import process
from pointsman.operator.kinds import SERVICE
from pointsman.operator.process import OperatorProcess, ProcessPlan, own_namespace, split_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("0.0.0.0", 8080)),
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:8081", ("::1", 8081)),
        ("[::]:65535", ("::", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["8080", "", "host", "host:", "host:http", ":65536", ":-1", ":80.5", "::"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UserError, match="is not an address: write host:port, or :port for all addresses") as caught:
        split_address(text)
    assert str(caught.value).startswith(repr(text))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"POD_NAMESPACE": "a", "NAMESPACE": "b"}, "a"),
        ({"NAMESPACE": "b"}, "b"),
        ({"POD_NAMESPACE": ""}, "default"),
    ],
)
def test_where_the_lease_is(
    environment: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ACCOUNT", tmp_path / "namespace")
    assert own_namespace(environment) == expected


def test_a_pods_account_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = tmp_path / "namespace"
    account.write_text("system\n")
    monkeypatch.setattr(process, "_ACCOUNT", account)
    assert own_namespace({}) == "system"


def make(**plan: object) -> OperatorProcess:
    nowhere = Client(httpx2.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False))
    return OperatorProcess(nowhere, ProcessPlan(**plan), environment={"POD_NAMESPACE": "home"})  # type: ignore[arg-type] # as written


async def test_one_runtime_for_all_namespaces_or_one_for_each() -> None:
    assert len(make().runtimes) == 1
    assert len(make(namespaces=("a", "b")).runtimes) == 2


async def test_without_addresses_nothing_is_served() -> None:
    assert make()._routes() == {}
    served = make(metrics_address=":1", health_address=":2")._routes()
    assert [(flag, address, list(routes)) for flag, (address, routes) in served.items()] == [
        ("--health-probe-bind-address", ":2", ["/healthz", "/readyz"]),
        ("--metrics-bind-address", ":1", ["/metrics"]),
    ]


async def test_before_the_first_list_it_is_alive_and_not_ready() -> None:
    ((_, routes),) = make(health_address=":1")._routes().values()
    assert routes["/healthz"]().status == 200
    ready = routes["/readyz"]()
    assert ready.status == 503
    assert b"deployments.apps: starting (first list pending)\n" in ready.body


@pytest.mark.parametrize(
    ("kind", "state", "problem", "status"),
    [
        pytest.param(SERVICE, "forbidden", "may not list", 200, id="a part that it may not read is told in conditions"),
        pytest.param(SIMULATOR_DEPLOYMENT, "forbidden", "may not list", 503, id="its own resource"),
        pytest.param(SERVICE, "unreachable", "a proxy said: forbidden", 503, id="the words of others do not count"),
        pytest.param(SERVICE, "absent", "no such kind", 200, id="not there"),
    ],
)
async def test_it_is_ready_by_what_it_follows(kind: Kind, state: State, problem: str, status: int) -> None:
    made = make(health_address=":1")
    (runtime,) = made.runtimes
    for reflector in runtime._reflectors.values():
        reflector._state = "following"
    runtime._reflectors[kind]._state, runtime._reflectors[kind].problem = state, problem
    ((_, routes),) = made._routes().values()
    assert routes["/readyz"]().status == status

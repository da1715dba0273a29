"""Envoy's configuration for a Pod becomes one for a process; that Envoy takes it is proved in tests/envoy."""

import json
from pathlib import Path

from pointsman.local import envoys
from pointsman.local.envoys import Backend, Host
from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.gateway import Gateway, ServicePool

DOCUMENT = bootstrap(
    Gateway(
        listen=Address("0.0.0.0", 80),
        admin=Address("127.0.0.1", 19001),
        ready=Address("0.0.0.0", 19000),
        pickers=(Address("epp.ns.svc.cluster.local", 9002),),
        picker_health_port=9003,
        pool=ServicePool(service=Address("pods.ns.svc.cluster.local", 8200)),
        failure_mode="FailOpen",
    )
)
PORTS = {80: Address("127.0.0.1", 1), 19000: Address("127.0.0.1", 2), 19001: Address("127.0.0.1", 3)}


def file(backend: Backend) -> Path:
    return Path("/e") / f"{backend.name}.json"


def test_what_it_listens_on_and_asks_for() -> None:
    assert set(envoys.own_ports(DOCUMENT)) == {80, 19000, 19001}
    assert sorted(envoys.backends(DOCUMENT)) == [
        Backend(service="epp", port=9002, health=9003),
        Backend(service="pods", port=8200),
    ]


def test_nothing_of_a_cluster_is_left() -> None:
    before = json.dumps(DOCUMENT)
    found = envoys.localized(DOCUMENT, ports=PORTS, file=file)
    text = json.dumps(found)
    assert not any(word in text for word in ("0.0.0.0", "svc.cluster.local", "STRICT_DNS", "dns_", "19001", "19000"))
    assert json.dumps(DOCUMENT) == before
    clusters = {each["name"]: each for each in found["static_resources"]["clusters"]}
    assert clusters["model-servers"]["eds_cluster_config"] == {
        "service_name": "pods-8200",
        "eds_config": {"resource_api_version": "V3", "path_config_source": {"path": "/e/pods-8200.json"}},
    }
    assert clusters["pickers"]["eds_cluster_config"]["service_name"] == "epp-9002-9003"
    assert clusters["pickers"]["ignore_health_on_host_removal"] is True
    assert clusters["pickers"]["health_checks"]  # what else the cluster says stays
    assert clusters["picked"] == next(c for c in DOCUMENT["static_resources"]["clusters"] if c["name"] == "picked")


def test_version_changes_with_the_content_alone() -> None:
    backend = Backend(service="epp", port=9002, health=9003)
    one = envoys.assignment(backend, [Host(Address("127.0.0.1", 5), 6)])
    same = envoys.assignment(backend, [Host(Address("127.0.0.1", 5), 6)])
    other = envoys.assignment(backend, [Host(Address("127.0.0.1", 5), 7)])
    assert one == same
    assert one["version_info"] != other["version_info"]
    (row,) = one["resources"][0]["endpoints"][0]["lb_endpoints"]
    assert row["endpoint"]["health_check_config"] == {"port_value": 6}


def test_relay_has_a_listener_and_a_cluster_for_each_port() -> None:
    places = {Backend(service="s", port=port): Address("127.0.0.1", port) for port in (1, 2)}
    listeners = envoys.relay_listeners(places)["resources"]
    clusters = envoys.relay_clusters(list(places), file=file)["resources"]
    assert [each["name"] for each in listeners] == [each["name"] for each in clusters] == ["s-1", "s-2"]
    assert listeners[1]["address"]["socket_address"]["port_value"] == 2

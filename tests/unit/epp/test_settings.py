from pathlib import Path
from typing import Any

import pytest

from pointsman.core.errors import UserError
from pointsman.epp.settings import REPLACED, Settings, parse_quantity
from pointsman.epp.sources.dialects import DIALECTS


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param({"grpc_port": 70_000}, "--grpc-port 70000 is not a port", id="port"),
        pytest.param({"metrics_port": 9002}, "must differ", id="same port twice"),
        pytest.param({"max_held_bytes": "10Ki"}, "--max-held-bytes 10Ki is too little", id="no memory"),
        pytest.param({"max_held_bytes": "lots"}, "--max-held-bytes 'lots' is not a size", id="memory of no size"),
        pytest.param({"body_timeout": 0.0}, "--body-timeout must be longer", id="no time"),
        pytest.param({"enable_cert_reload": True}, "--enable-cert-reload watches --cert-path", id="reload of nothing"),
        pytest.param({"config_file": Path("a"), "config_text": "b"}, "exclude each other", id="two configurations"),
        pytest.param({"pool_name": "p", "endpoint_selector": "a"}, "exclude each other", id="pool and selector"),
        pytest.param({"pool_name": "p", "endpoints_file": Path("a")}, "exclude each other", id="cluster and file"),
        pytest.param({"pool_name": "p", "pool_group": "x"}, "--pool-group 'x' is unknown", id="group"),
        pytest.param({"endpoint_selector": "a"}, "needs --endpoint-target-ports", id="selector without ports"),
        pytest.param({"endpoint_selector": "a", "endpoint_target_ports": "80,x"}, "one to eight ports", id="bad ports"),
        pytest.param({"ha_enable_leader_election": True}, "needs a cluster", id="election without a cluster"),
        pytest.param({"metrics_client_ca_file": Path("a")}, "name --metrics-cert-dir too", id="authority without TLS"),
        pytest.param(
            {"metrics_cert_dir": Path("a"), "metrics_endpoint_auth": False},
            "--metrics-cert-dir without knowing who asks: name --metrics-client-ca-file",
            id="TLS for anybody",
        ),
        pytest.param(
            {"lora_info_metric": "x"}, "--lora-info-metric is gone: name the metric in engineConfigs", id="gone"
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_flag(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        Settings(**settings).check()
    assert sentence in str(error.value)


def test_the_names_that_kserve_sets_are_those_that_are_read_anyway() -> None:
    vllm = DIALECTS["vllm"]
    read = (vllm.waiting, vllm.running, vllm.kv_usage, vllm.lora, vllm.cache_info)
    assert list(REPLACED.values()) == [spec.name for spec in read if spec is not None]
    Settings(kv_cache_usage_percentage_metric="vllm:kv_cache_usage_perc").check()


def test_defaults_are_fine_and_nothing_is_in_vain() -> None:
    Settings().check()
    assert Settings().without_effect() == []


def test_flags_that_change_nothing_are_named() -> None:
    assert Settings(grpc_max_send_msg_size="1M", enable_pprof=False, explain=True).without_effect() == [
        "--grpc-max-send-msg-size",
        "--enable-pprof",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [("4MiB", 4 << 20), ("10MB", 10**7), ("64Ki", 65_536), ("1000", 1000), ("2k", 2000), ("1G", 10**9)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_quantity(text, flag="--max-body") == size


@pytest.mark.parametrize("text", ["", "0", "-1", "10X", "MiB", "1.5Mi"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match="--max-body"):
        parse_quantity(text, flag="--max-body")


@pytest.mark.parametrize(
    ("text", "ports"), [("", ()), ("8000", (8000,)), ("8000, 8001,8000", (8000, 8001)), ("[8000,8001]", (8000, 8001))]
)
def test_target_ports(text: str, ports: tuple[int, ...]) -> None:
    assert Settings(endpoint_target_ports=text).target_ports == ports

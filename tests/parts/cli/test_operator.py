"""`pointsman operator` with what it cannot use: one sentence, and no cluster is asked."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.logs import captured

from pointsman.cli import app, main
from pointsman.cli.operator import OperatorOptions
from pointsman.core.documents import read_yaml
from pointsman.render.manifests.policy import Policy


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """The command sets logs up for its whole process, which is not ours."""
    with captured():
        yield


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["operator", *argv])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pointsman: ")
    return line.removeprefix("pointsman: ")


@pytest.mark.parametrize("flag", ["--metrics-bind-address", "--health-probe-bind-address"])
def test_no_address(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, flag, "8080") == ("'8080' is not an address: write host:port, or :port for all addresses")


def test_one_address_for_two(capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "--metrics-bind-address", ":9000", "--health-probe-bind-address", ":9000")
    assert said == "--metrics-bind-address and --health-probe-bind-address are the same: change one of them"


@pytest.mark.parametrize(
    ("named", "wrong"),
    [("a,Not_A_Name", "Not_A_Name"), ("a b", "a b"), ("-a", "-a"), ("a" * 64, "a" * 64)],
    ids=["capitals", "a blank for a comma", "hyphen first", "too long"],
)
def test_no_namespace(named: str, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, f"--watch-namespaces={named}")
    assert said == (
        f"--watch-namespaces: {wrong!r} is no namespace: write names of small letters, digits and hyphens, "
        "with commas between"
    )


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--max-replicas", "-1", "--max-replicas -1 is less than none: give 0 or more"),
        (
            "--trusted-image-prefixes",
            "a/b,c d",
            "--trusted-image-prefixes: 'c d' is not the beginning of an image's name, such as ghcr.io/llm-d/",
        ),
        (
            "--allowed-image-prefixes",
            "r.example",
            "--allowed-image-prefixes: 'r.example' would be an image of that name: write r.example/ for all of a registry",  # noqa: E501 - one message, as it is shown
        ),
        (
            "--gateway-namespaces",
            "team",
            "--gateway-namespaces: 'team' is not a label: write name=value, with commas between",
        ),
        (
            "--metrics-namespaces",
            "a=b c",
            "--metrics-namespaces: 'a=b c' is not a label: write name=value, with commas between",
        ),
    ],
)
def test_no_policy(flag: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, f"{flag}={value}") == expected


def test_flags_become_a_policy() -> None:
    words = (
        "--max-replicas=3 --trusted-image-prefixes=a.example/,b --allowed-image-prefixes=c/"
        " --allow-external-services=true --network-policies=false --gateway-namespaces=x=y,z="
        " --metrics-namespaces=m/n=o --picker-metrics-auth=false"
    )
    _, bound, _ = app.parse_args(["operator", *words.split()], exit_on_error=False, print_error=False)
    assert bound.arguments["options"].to_policy() == Policy(
        max_replicas=3,
        trusted_images=("a.example/", "b"),
        allowed_images=("c/",),
        external_services=True,
        network_policies=False,
        gateway_namespaces=(("x", "y"), ("z", "")),
        metrics_namespaces=(("m/n", "o"),),
        metrics_auth=False,
    )
    assert OperatorOptions().to_policy() == Policy()


def test_the_manifest_says_the_defaults() -> None:
    manifest = read_yaml(Path(__file__).parents[3] / "config" / "manager" / "manager.yaml")
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    _, bound, _ = app.parse_args(container["args"], exit_on_error=False, print_error=False)
    options = bound.arguments["options"]
    assert options.to_policy() == Policy()
    assert (options.leader_elect, options.metrics_endpoint_auth) == (True, True)


def test_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none"
    said = complaint(capsys, "--kubeconfig", str(missing), "--metrics-bind-address=0", "--health-probe-bind-address=0")
    assert said.startswith(f"no usable cluster configuration in {missing}: ")


def test_an_unknown_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--leader-elct" in complaint(capsys, "--leader-elct")


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],'
        ' "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],'
        ' "users": [{"name": "u", "user": {}}]}'
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = (f"--metrics-bind-address=127.0.0.1:{port}", "--health-probe-bind-address=0")
        said = complaint(capsys, "--kubeconfig", str(config), *flags)
    assert said.startswith(f"port {port} for ") and said.endswith("choose another with --metrics-bind-address")

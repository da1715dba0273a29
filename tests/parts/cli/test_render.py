"""`pointsman render` and what it refuses; `pointsman diff` is proved in tests/cluster/test_diff.py."""

from pathlib import Path

import pytest
import yaml

from pointsman.cli import main
from pointsman.cli.render import facts
from pointsman.core.errors import UserError
from pointsman.render.manifests.facts import Facts

SAMPLES = Path(__file__).parents[3] / "config" / "samples"
FULL = str(SAMPLES / "sim_v1alpha1_simulatordeployment_full.yaml")


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_stream_of_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "-f", FULL) == 0
    printed = capsys.readouterr()
    kinds = [document["kind"] for document in yaml.safe_load_all(printed.out)]
    assert kinds.count("Deployment") == 5
    assert "InferencePool" not in kinds
    assert printed.err.startswith("note: ")


def test_with_what_a_cluster_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "-f", FULL, "--with", "istio,gateway-api,inference-pool") == 0
    kinds = {document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)}
    assert kinds >= {"InferencePool", "Gateway", "HTTPRoute", "DestinationRule"}


def test_an_install(capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(SAMPLES / "sim_v1alpha1_schedulerinstall.yaml")
    assert run("render", "-f", sample, "--with", "istio,gateway-api,inference-pool") == 0
    printed = capsys.readouterr()
    kinds = {document["kind"] for document in yaml.safe_load_all(printed.out)}
    assert kinds >= {"InferencePool", "Gateway", "HTTPRoute", "EnvoyFilter", "ReferenceGrant"}
    assert printed.err == ""
    assert run("render", "-f", sample, "--install-namespaces=other") == 0
    printed = capsys.readouterr()
    assert "refused: spec.simulatorNamespace is llm-d-sim" in printed.err
    assert "note: Istio is not installed" in printed.err


def test_what_the_operator_would_refuse_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "-f", FULL, "--max-replicas=1", "--network-policies=false") == 0
    printed = capsys.readouterr()
    refused = [line for line in printed.err.splitlines() if line.startswith("refused: ")]
    assert [line.split()[1] for line in refused] == ["spec.prefill.replicas", "spec.decode.replicas"]
    assert "NetworkPolicy" not in {document["kind"] for document in yaml.safe_load_all(printed.out)}


SERVICE = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: phi3, namespace: models}
spec: {router: {scheduler: {image: docker.io/library/pointsman:mine}}}
"""


def test_a_shorthand_is_told_with_its_full_spelling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "service.yaml").write_text(SERVICE)
    assert run("render", "-f", str(tmp_path / "service.yaml")) == 0
    assert "write spec.router.scheduler.template.containers[name=main].image" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "hint"), [("SchedulerInstal", "did you mean 'SchedulerInstall'?"), ("Pod", "choose from SimulatorDeploy")]
)
def test_a_kind_that_is_none_of_ours(kind: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrong.yaml").write_text(SERVICE.replace("LLMInferenceService", kind))
    assert run("render", "-f", str(tmp_path / "wrong.yaml")) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"kind: '{kind}' is rendered by nobody" in said
    assert hint in said


def test_abilities() -> None:
    assert facts("") == Facts()
    assert facts("istio, gateway-api").istio_gateway
    assert facts("openshift") == Facts(openshift=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("isto", "--with isto is nothing that a cluster has: did you mean 'istio'?"),
        (
            "gpus",
            (
                "--with gpus is nothing that a cluster has: choose from inference-pool, gateway-api, istio, openshift, "
                "cert-manager"
            ),
        ),
    ],
)
def test_ability_that_nobody_knows(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        facts(text)
    assert str(refusal.value) == message


def test_diff_without_a_cluster_is_an_error_and_no_difference(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("diff", "-f", FULL, "--kubeconfig", str(tmp_path / "none")) == 2
    assert "no usable cluster configuration in" in capsys.readouterr().err


def test_diff_with_a_cluster_that_is_away_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config"
    away = {"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    document = {"clusters": [away], "contexts": [context], "users": [{"name": "a", "user": {}}], "current-context": "a"}
    config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config"} | document))
    assert run("diff", "-f", FULL, "--kubeconfig", str(config)) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)


def test_an_llm_inference_service(capsys: pytest.CaptureFixture[str]) -> None:
    sample = SAMPLES / "llm" / "phi3.yaml"
    everything = ("--with", "inference-pool,gateway-api,istio,cert-manager")
    assert run("render", "-f", str(sample), *everything, "--llm-gateway=infra/edge", "--llm-tls=false") == 0
    printed = capsys.readouterr().out
    kinds = {document["kind"] for document in yaml.safe_load_all(printed)}
    assert {"HTTPRoute", "InferencePool", "Deployment", "Service", "Role"} <= kinds
    assert "DestinationRule" not in kinds  # it is for TLS
    assert "name: edge\n    namespace: infra" in printed
    assert run("render", "-f", str(sample), "--llm-gateway=edge") == 2
    assert "--llm-gateway 'edge' is no Gateway: write namespace/name" in capsys.readouterr().err

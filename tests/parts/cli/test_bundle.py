"""`pointsman bundle`: each command on small bundles, with olm-extractor's flags, and what it refuses."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.bundle.made import RULES, crd, deployment, files, webhook

from pointsman.cli import main


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["bundle", *arguments])
    return ended.value.code


def written(folder: Path, **parts: Any) -> str:
    for path, text in files(**parts).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)
    return str(folder)


@pytest.fixture
def source(tmp_path: Path) -> str:
    permissions = [{"serviceAccountName": "manager", "rules": RULES}]
    return written(tmp_path / "bundle", permissions=permissions, crds=[crd()], webhooks=[webhook()])


def printed(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.parametrize("command", ["extract", "run"])
def test_extract_prints_objects_in_the_order_of_their_needs(
    command: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, source, "-n", "there") == 0
    kinds = [each["kind"] for each in printed(capsys)]
    assert kinds[:3] == ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
    assert kinds[-2:] == ["Deployment", "ValidatingWebhookConfiguration"]
    assert kinds.index("Service") < kinds.index("Issuer") < kinds.index("Certificate") < kinds.index("Deployment")


def test_the_same_twice(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        run("extract", source, "-n", "there")
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_olm_extractors_flags_and_environment(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BUNDLE_EXTRACT_NAMESPACE", "from-environment")
    monkeypatch.setenv("BUNDLE_EXTRACT_EXCLUDE", '.kind == "Namespace" or .kind == "Service"')
    flags = (
        "--cert-manager-enabled=false",
        "--watch-namespace=",
        "--temp-dir",
        str(tmp_path / "t"),
        "--registry-insecure",
    )
    assert run("run", *flags, source) == 0
    found = printed(capsys)
    assert {each["kind"] for each in found}.isdisjoint({"Namespace", "Service", "Issuer", "Certificate"})
    assert {each["metadata"].get("namespace") for each in found} == {None, "from-environment"}


def test_filters(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    include = ("--include", '.kind == "Deployment"', "--include", '.kind | test("Role")', "--exclude", ".metadata.name")
    assert run("extract", source, "-n", "x", *include, "--exclude", '.kind == "ClusterRole"') == 0
    assert [each["kind"] for each in printed(capsys)] == ["ClusterRoleBinding", "Deployment"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(
            ["-n", "x", "--exclude", ".kind =="], "--exclude '.kind ==' is no jq expression", id="no expression"
        ),
        pytest.param(["-n", "x", "--include", ".kind.x"], "--include '.kind.x' fails on Namespace x", id="fails"),
        pytest.param([], "--namespace is missing", id="no namespace"),
        pytest.param(["-n", "Not_One"], "--namespace 'Not_One' is no namespace", id="no namespace's name"),
        pytest.param(
            ["-n", "x", "--watch-namespace", "a,b"], "--watch-namespace 'a,b' is no namespace", id="two in one"
        ),
        pytest.param(["-n", "x", "--config", "/absent"], "/absent: cannot be read", id="no config"),
        pytest.param(["-n", "x", "-o", "/absent/x"], "/absent/x: cannot be written", id="no folder"),
        pytest.param(["-n", "x", "--temp-dir", "/dev/null/x"], "/dev/null/x: cannot be written", id="no scratch"),
        pytest.param(["-n", "x", "--certificates", "magic"], "certificates", id="no provider"),
    ],
)
def test_a_mistake_is_one_sentence(
    source: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("extract", source, *arguments) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error


def test_a_refused_bundle_prints_nothing_but_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("extract", written(tmp_path, owned=["absent.example.com"]), "-n", "x") == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert "[owned-crd-exists]" in found.err


def test_self_signed_certificates_hold_together(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    import base64

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    assert run("extract", source, "-n", "there", "--certificates", "self-signed") == 0
    by_kind = {each["kind"]: each for each in printed(capsys)}
    data = {name: base64.b64decode(text) for name, text in by_kind["Secret"]["data"].items()}
    bundle = by_kind["ValidatingWebhookConfiguration"]["webhooks"][0]["clientConfig"]["caBundle"]
    authority, own = (x509.load_pem_x509_certificate(data[name]) for name in ("ca.crt", "tls.crt"))
    own.verify_directly_issued_by(authority)
    assert base64.b64decode(bundle) == data["ca.crt"]
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert "manager-service.there.svc" in names
    assert isinstance(own.public_key(), ec.EllipticCurvePublicKey)


def test_config_changes_the_pods(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("env: [{name: A, value: b}]\nnodeSelector: {os: linux}\n")
    assert run("extract", source, "-n", "x", "--config", str(config)) == 0
    (found,) = (each for each in printed(capsys) if each["kind"] == "Deployment")
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"os": "linux"}


def test_chart_is_written_twice_alike(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "chart"
    for _ in range(2):
        assert run("chart", source, "-o", str(folder), "--name", "mine") == 0
    assert "name: mine\n" in (folder / "Chart.yaml").read_text()
    assert "chart of thing.v1.2.3" in capsys.readouterr().out


def test_diff_reads_one_side_from_stdin(source: str, tmp_path: Path) -> None:
    def diff(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pointsman", "bundle", "diff", *arguments, "-n", "x"]
        return subprocess.run(command, input=manifests.read_text(), capture_output=True, text=True, check=False)

    manifests = tmp_path / "m.yaml"
    assert run("extract", source, "-n", "x", "-o", str(manifests)) == 0
    for arguments in (("-", source), (source, "-")):
        same = diff(*arguments)
        assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    assert "both stdin" in diff("-", "-").stderr
    assert "Unknown option: -x" in diff("-x", source).stderr


def test_a_chart_watches_what_is_asked(source: str, tmp_path: Path) -> None:
    def watched(*flags: str) -> str:
        assert run("chart", source, "-o", str(tmp_path / "chart"), *flags) == 0
        text = (tmp_path / "chart" / "templates" / "deployment-manager.yaml").read_text()
        return next(line.partition(":")[2].strip() for line in text.splitlines() if "olm.targetNamespaces" in line)

    assert watched() == watched("--watch-namespace", "") == '""'
    assert watched("-n", "own", "--watch-namespace", "own") == '"{{ .Release.Namespace }}"'
    assert watched("-n", "own", "--watch-namespace", "own", "--watch-namespace", "b") == '"{{ .Release.Namespace }},b"'


def test_a_reader_that_has_gone_gets_no_complaint(source: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pointsman", "bundle", "extract", source, "-n", "x"]
    found = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (found.returncode, found.stderr) == (0, "")


def test_diff_names_the_fields(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diff", source, source, "-n", "x") == 0
    assert capsys.readouterr().out == ""
    changed = deployment()
    changed["spec"]["replicas"] = 2
    del changed["spec"]["strategy"]
    other = written(tmp_path / "new", crds=[crd()], deployments=[changed], webhooks=[webhook()])
    assert run("diff", source, other, "-n", "x") == 1
    lines = capsys.readouterr().out.splitlines()
    assert "~ Deployment x/manager .spec.replicas: 1 → 2" in lines
    assert "- Deployment x/manager .spec.strategy: {}" in lines
    assert "- ServiceAccount x/manager" in lines


def test_diff_shows_what_another_tool_lost(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("extract", source, "-n", "x")
    text = capsys.readouterr().out.replace("    subresources:\n      status: {}\n", "")
    (tmp_path / "other.yaml").write_text(text)
    assert run("diff", source, str(tmp_path / "other.yaml"), "-n", "x") == 1
    assert "- CustomResourceDefinition widgets.example.com .spec.versions[0].subresources" in capsys.readouterr().out
    assert run("diff", source, "/absent.yaml", "-n", "x") == 2


def test_inspect_says_what_there_is(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", source, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["package"], found["version"], found["definitions"]) == ("thing", "1.2.3", ["widgets.example.com"])
    assert run("inspect", written(tmp_path / "bad", owned=["absent.example.com"])) == 2
    assert "[owned-crd-exists]" in capsys.readouterr().out


def krm(monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]) -> int | str | None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}
    config = {"apiVersion": "olm.lburgazzoli.github.io/v1alpha1", "kind": "Extractor", "spec": spec}
    document = {
        "apiVersion": "config.kubernetes.io/v1",
        "kind": "ResourceList",
        "items": [item],
        "functionConfig": config,
    }
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(document).encode())))
    return run("krm")


def test_krm_adds_to_the_items(
    source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec: dict[str, Any] = {
        "source": source,
        "namespace": "x",
        "exclude": ['.kind == "Namespace"'],
        "certManager": {"enabled": False},
    }
    spec |= {"catalog": None, "include": None}  # keys with nothing behind them
    assert krm(monkeypatch, spec) == 0
    (found,) = printed(capsys)
    kinds = [each["kind"] for each in found["items"]]
    assert (found["kind"], kinds[0]) == ("ResourceList", "ConfigMap")
    assert "Deployment" in kinds
    assert {"Namespace", "Issuer"}.isdisjoint(kinds)


def test_krm_hands_the_items_on_and_fails_when_it_must(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert krm(monkeypatch, {"source": written(tmp_path, package=""), "namespace": "x"}) == 2
    captured = capsys.readouterr()
    found = yaml.safe_load(captured.out)
    assert [each["metadata"]["name"] for each in found["items"]] == ["first"]
    assert found["results"][0]["severity"] == "error"
    assert "package-name" in captured.err
    assert krm(monkeypatch, {"sauce": "x"}) == 2
    assert "functionConfig.spec" in capsys.readouterr().err


def imported(*arguments: str) -> set[str]:
    """Return every module that a command has imported when it ends."""
    code = (
        "import sys; from pointsman.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


def outside(modules: set[str]) -> set[str]:
    """Return the packages among modules that are neither Python's own nor ours."""
    tops = {name.partition(".")[0] for name in modules}
    own = {"pointsman", "cython_runtime", "_distutils_hack", "sitecustomize"}  # the last is Debian's
    return {name for name in tops - sys.stdlib_module_names - own if not name.startswith(("__", "_cython"))}


def test_help_imports_no_command() -> None:
    """Imports are most of start-up: `pointsman --help` has the command line's library and nothing else."""
    found = imported("--help")
    ours = {name.removeprefix("pointsman.") for name in found if name.startswith("pointsman.")}
    assert ours == {"cli", "cli.goflags", "core", "core.errors", "core.faults"}  # all of them small
    assert outside(found) <= {"attr", "attrs", "cyclopts", "docstring_parser", "rich"}


def test_a_small_bundle_does_not_pay_for_registries_or_models(source: str) -> None:
    """Start-up is most of the time of a small bundle, and imports are most of start-up."""
    found = imported("bundle", "extract", source, "-n", "x")
    assert outside(found) <= {"attr", "attrs", "cyclopts", "msgspec", "typing_extensions", "yaml"}
    packages = {name.split(".")[1] for name in found if name.startswith("pointsman.")}
    assert packages == {"bundle", "cli", "core"}
    for heavy in ("asyncio", "tarfile", "ssl", "subprocess", "tempfile", "pointsman.bundle.sources.registry"):
        assert heavy not in found, heavy


def test_help_of_the_platform_reads_no_bundle_and_knows_no_cluster() -> None:
    found = imported("platform", "--help")
    ours = {name.split(".")[1] for name in found if name.startswith("pointsman.")}
    assert ours == {"cli", "core"}


def test_a_filter_that_fails_does_not_bring_the_process_down(source: str) -> None:
    """jq's binding crashes when a failed iterator is collected after its program, as in a traceback that goes."""
    code = (
        "import gc, sys; from pointsman.cli import main\n"
        "for _ in range(3):\n"
        "    try: main(sys.argv[1:])\n"
        "    except SystemExit as error: kept = error\n"
        "    gc.collect()\n"
        "print('alive', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "bundle", "extract", source, "-n", "x", "--include", ".kind.x"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr.endswith("alive\n")

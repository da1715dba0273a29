"""The architecture is a contract: each of these imports, added to a copy of the code, is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VIOLATIONS = [
    pytest.param("epp/plugins/scorers.py", "pointsman.epp.server", id="a plugin knows the server"),
    pytest.param("epp/assembly.py", "pointsman.epp.discovery", id="the parts know where endpoints come from"),
    pytest.param("epp/plugins/filters.py", "pointsman.epp.schedule.director", id="a plugin knows who calls it"),
    pytest.param("epp/plugins/pickers.py", "asyncio", id="a plugin waits"),
    pytest.param("epp/schedule/scheduler.py", "pointsman.wire.listener", id="the scheduler knows sockets"),
    pytest.param("epp/schedule/profile.py", "subprocess", id="a profile starts processes"),
    pytest.param("epp/pool/member.py", "pointsman.epp.sources.scrape", id="the pool knows who asks"),
    pytest.param("render/manifests/stack.py", "pointsman.sim.engine.engine", id="a renderer knows the engine"),
    pytest.param(
        "render/envoy/clusters.py", "pointsman.render.manifests.names", id="Envoy's configuration knows Kubernetes"
    ),
    pytest.param("render/envoy/filters.py", "socket", id="a renderer opens sockets"),
    pytest.param(
        "bundle/render/objects.py", "pointsman.bundle.sources.registry", id="a bundle's renderer knows registries"
    ),
    pytest.param("api/simulator.py", "pointsman.sim.server", id="a model knows a server"),
    pytest.param("operator/process.py", "pointsman.epp.server", id="the operator is a picker"),
    pytest.param("sim/engine/engine.py", "pointsman.sim.server", id="the engine knows the server"),
    pytest.param("sim/engine/steps.py", "asyncio", id="the engine waits"),
    pytest.param("kube/store.py", "pointsman.kube.runtime", id="the store knows the runtime"),
    pytest.param("wire/connection.py", "pointsman.wire.listener", id="a connection knows its socket"),
    pytest.param("core/http/exchange.py", "pointsman.core.http.client", id="an exchange knows its socket"),
    pytest.param("core/http/connection.py", "asyncio", id="HTTP is read by a socket"),
    pytest.param("wire/control.py", "pointsman.wire.connection", id="control frames know streams"),
    pytest.param("doctor/cluster/chain.py", "pointsman.doctor.gather.cluster", id="a check asks the cluster"),
    pytest.param("doctor/cluster/routing.py", "subprocess", id="a check runs programs"),
    pytest.param("doctor/gather/requests.py", "pointsman.epp.schedule.director", id="the doctor is a picker"),
    pytest.param("platform/spec.py", "asyncio", id="what a platform shall be waits"),
    pytest.param("platform/deploy.py", "pointsman.operator.definitions", id="the platform is an operator"),
    pytest.param("bundle/render/rbac.py", "httpx2", id="a bundle's renderer asks a server"),
    pytest.param("bundle/chart/templating.py", "subprocess", id="a chart's writer runs programs"),
    pytest.param("epp/bbr/selector.py", "asyncio", id="choosing a model waits"),
    pytest.param("epp/bbr/filters.py", "pointsman.epp.bbr.server", id="the router's filter knows the server"),
    pytest.param("epp/page/rows.py", "pointsman.epp.page.live", id="a row knows who shows it"),
    pytest.param("epp/prediction/breaker.py", "asyncio", id="a breaker waits"),
    pytest.param("epp/schedule/director.py", "pointsman.epp.prediction.questions", id="the director asks a predictor"),
    pytest.param("epp/extproc/stream.py", "asyncio", id="a stream's state waits"),
    pytest.param("wire/frames.py", "socket", id="frames know sockets"),
    pytest.param("render/scheduler/install.py", "pointsman.render.serving.names", id="renderers know each other"),
    pytest.param("render/serving/certificates.py", "pointsman.kube.client", id="a renderer asks the cluster"),
    pytest.param("crds/decide.py", "pointsman.kube.client", id="who owns a definition is asked while deciding"),
    pytest.param("operator/findings.py", "asyncio", id="findings wait"),
    pytest.param(
        "operator/schedulerinstall.py", "pointsman.operator.simulatordeployment", id="controllers know each other"
    ),
    pytest.param("local/objects.py", "pointsman.local.processes", id="a plan starts processes"),
    pytest.param("local/stack.py", "pointsman.operator.process", id="siblings know each other"),
    pytest.param("core/errors.py", "pointsman.kube.errors", id="the core knows what stands on it"),
]


def lint(root: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_code_keeps_its_contracts(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0 and "0 broken" in done.stdout, done.stdout


@pytest.mark.parametrize(("module", "imported"), VIOLATIONS)
def test_a_violation_is_refused(copy: Path, module: str, imported: str) -> None:
    file = copy / "src" / "pointsman" / module
    text = file.read_text()
    try:
        file.write_text(f"{text}\nimport {imported}\n")
        done = lint(copy)
    finally:
        file.write_text(text)
    assert done.returncode == 1 and "BROKEN" in done.stdout, done.stdout

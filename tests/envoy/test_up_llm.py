"""`pointsman up -f` with an LLMInferenceService: the manifest of the requirement, with simulators in place of GPUs."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.envoy.commands import Run, status
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "config" / "samples" / "llm" / "phi3.yaml"
NAME = "phi3-gpu-alpn-test"
PREFIX = f"/rhaii-inference/{NAME}"


def ask(url: str, *, prefix: str = PREFIX) -> httpx.Response:
    body = {"model": NAME, "prompt": "hello", "max_tokens": 4}
    return httpx.post(f"{url}{prefix}/v1/completions", json=body, timeout=30)


def picked(document: dict[str, Any], answer: httpx.Response) -> str:
    """Return the Pod that the picker chose for an answer."""
    by_address = {row["address"]: row["name"] for row in document["endpoints"]}
    with httpx.Client(base_url=document["picker"]["metrics"]) as picker:
        found = picker.get("/debug/decisions", params={"id": answer.headers["x-request-id"]}).json()["decisions"]
    return str(by_address[found[0]["picked"][0]])


def test_the_manifest_of_the_requirement(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "llmisvc.yaml"
    shutil.copy(SAMPLE, file)
    started = run("up", "--detach", "--any-ports", "-f", str(file))
    assert started.returncode == 0, started.stderr
    assert f"{NAME}-kserve: ghcr.io/llm-d/llm-d-cuda:v0.4.0 is replaced by simulators" in started.stdout
    document = status(run)
    assert len(document["endpoints"]) == 3
    for prefix in (PREFIX, ""):
        answer = ask(document["gateway"], prefix=prefix)
        assert answer.status_code == 200
        assert answer.headers["x-inference-pod"] == picked(document, answer)
    assert httpx.get(f"{document['gateway']}{PREFIX}/metrics").status_code == 404

    # The picker by hand, as docs/how-to/verify-alpn.md has it.
    where = document["services"][f"{NAME}-epp-service:9002"]
    assert "ALPN protocol: h2" in openssl(where, "h2")
    assert re.search("No ALPN negotiated", openssl(where, "http/1.1"))

    # Without a scheduler the gateway asks the servers alone.
    content = yaml.safe_load(file.read_text())
    del content["spec"]["router"]["scheduler"]
    file.write_text(yaml.safe_dump(content))
    wait_until(lambda: not status(run)["picker"])
    assert ask(document["gateway"]).status_code == 200


def test_the_commands_of_the_page(run: Run) -> None:
    """The laptop's block of docs/how-to/serve-a-model.md, on ports that are nobody's."""
    page = (ROOT / "docs" / "how-to" / "serve-a-model.md").read_text()
    (block,) = re.findall(r"^```bash\n(pointsman up .*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    said = []
    for line in block.splitlines():
        words = shlex.split(line)[1:]
        more = ["--any-ports"] if words[0] == "up" else []
        done = run(*(str(ROOT / word) if word.endswith(".yaml") else word for word in words), *more)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "is replaced by simulators" in said[0]
    assert f"{NAME}-kserve-" in said[1]
    assert said[2] == "the stack is stopped\n"


def openssl(where: str, protocol: str) -> str:
    """Return what `openssl s_client` says of a handshake."""
    command = ["openssl", "s_client", "-connect", where, "-alpn", protocol]
    said = subprocess.run(command, input=b"", capture_output=True, timeout=20, check=False)
    return said.stdout.decode(errors="replace")


def test_what_cannot_run_here_says_why(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "llmisvc.yaml"
    content = yaml.safe_load(SAMPLE.read_text())
    content["spec"]["baseRefs"] = [{"name": "ours"}]
    file.write_text(yaml.safe_dump(content))
    refused = run("up", "--detach", "--any-ports", "-f", str(file))
    assert refused.returncode == 2
    assert "spec.baseRefs names LLMInferenceServiceConfig 'ours'" in refused.stderr
    content["spec"]["router"]["scheduler"] = {"replicas": "two"}
    file.write_text(yaml.safe_dump(content))
    refused = run("up", "--detach", "--any-ports", "-f", str(file))
    assert refused.returncode == 2
    assert "spec.router.scheduler.replicas" in refused.stderr

"""Load generators that others wrote, against the stack of `pointsman up`: they complete, and their reports open.

inference-perf and guidellm bring torch and a hundred other packages, 6 GB, so they live in an environment of their own
in the cache outside the clone (`clients.txt`), which only `--install` makes; LangChain, which a test of the simulator
uses where it is there, lives with them. Each sends a stack of two simulators
with the steps of a GPU chat requests that stream, with a tokenizer made here, one token a character, since none can be
fetched. A request that fails, a report that does not open, or one that counts other tokens than were asked for, ends
this with 1.

    python -m bench clients [--install] [--requests 40] [--rate 4]
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

PINNED = Path(__file__).with_name("clients.txt")
MODEL = "sim-model"
OUTPUT = 20  # tokens of every answer
PORTS = ("--port", "--admin-port", "--sim-port", "--grpc-port", "--grpc-health-port", "--metrics-port")
TOKENIZER = """
import string, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
names = ["<s>", "</s>", "<unk>", *string.ascii_letters, *string.digits, *".,:;!?-'", "\\u0120"]
whole = Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, [], unk_token="<unk>"))
whole.pre_tokenizer, whole.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
PreTrainedTokenizerFast(tokenizer_object=whole, **special).save_pretrained(sys.argv[1])
"""


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the clients' environment is or would be; that of another Python may not run here."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pointsman"
    code = hashlib.sha256(f"{sys.version} {sys.base_prefix} ".encode() + PINNED.read_bytes())
    return cache / f"clients-{code.hexdigest()[:12]}"


def python(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the Python that has the clients; None where nobody has installed them."""
    found = place(environment)
    return found / "bin" / "python" if (found / "complete").exists() else None


def install() -> Path:
    """Return the same, installing them first."""
    if (found := python()) is not None:
        return found
    print("installing inference-perf, guidellm and langchain-openai: 6 GB, 10 to 20 minutes", flush=True)
    venv.create(place(), with_pip=True)
    pip = [str(place() / "bin" / "pip"), "install", "--quiet", "--no-cache-dir", "--no-compile"]
    # all of it is pinned, so nothing is resolved; inference-perf asks for Python 3.12, and runs on 3.11
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", "-r", str(PINNED)], check=True, timeout=3600)
    (place() / "complete").touch()
    return place() / "bin" / "python"


@contextmanager
def stack(folder: Path) -> Iterator[str]:
    """Run `up` with state of its own, and give out its address."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}

    def pointsman(*words: str) -> str:
        command = [sys.executable, "-m", "pointsman", *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=180).stdout

    flags = "--sim-args=--latency-model h200-llama-3.1-8b --max-num-seqs 64 --max-model-len 8192"
    pointsman("up", "--detach", "--replicas", "2", "--model", MODEL, flags, *(f"{port}=0" for port in PORTS))
    try:
        yield str(json.loads(pointsman("status", "--json"))["gateway"])
    finally:
        pointsman("down")


class Clients:
    """The tools, where they write, and what they send."""

    def __init__(self, binaries: Path, folder: Path, *, requests: int, rate: float) -> None:
        self.binaries, self.folder, self.requests, self.rate = binaries, folder, requests, rate
        self.tokenizer = folder / "tokenizer"
        self.run("python", "-c", TOKENIZER, str(self.tokenizer))

    def run(self, name: str, *words: str) -> None:
        """Run one of them; what it says is shown when it fails."""
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(self.folder / "hub")}
        command = [str(self.binaries / name), *words]
        done = subprocess.run(
            command, env={**os.environ, **offline}, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

    def inference_perf(self, url: str) -> dict[str, Any]:
        """Run inference-perf and return what its report says."""
        shape = {"num_unique_system_prompts": 3, "num_users_per_system_prompt": 2, "system_prompt_len": 100}
        config = {
            "api": {"type": "chat", "streaming": True},
            "data": {"type": "shared_prefix", "shared_prefix": {**shape, "question_len": 30, "output_len": OUTPUT}},
            "load": {"type": "constant", "num_workers": 1, "stages": [self._stage()]},
            "server": {"type": "vllm", "model_name": MODEL, "base_url": url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(self.tokenizer)},
            "storage": {"local_storage": {"path": str(self.folder / "inference-perf")}},
        }
        path = self.folder / "inference-perf.yaml"
        path.write_text(yaml.safe_dump(config))
        self.run("inference-perf", "-c", str(path))
        report = json.loads((self.folder / "inference-perf" / "summary_lifecycle_metrics.json").read_text())
        checks = json.loads((self.folder / "inference-perf" / "validation.json").read_text())
        good = report["successes"]
        return {
            "requests": good["count"],
            "failed": report["failures"]["count"],
            "output tokens": good["output_tokens"]["mean"],
            "first token ms": good["latency"]["time_to_first_token"]["mean"] * 1e3,
            "errors in its report": sum(
                len(each["errors"]) for each in (checks["global"], *checks["reports"].values())
            ),
        }

    def _stage(self) -> dict[str, float]:
        return {"rate": self.rate, "duration": max(1, round(self.requests / self.rate))}

    def guidellm(self, url: str) -> dict[str, Any]:
        """Run guidellm and return what its report says; `export` reads it again, as a person would."""
        report = self.folder / "guidellm.json"
        self.run(
            "guidellm", "run", "--disable-console",
            "--backend", f"kind=openai_http,target={url},model={MODEL}",
            "--profile", f"kind=constant,rate={self.rate}",
            "--constraint", f"kind=max_requests,count={self.requests}",
            "--tokenizer", f"kind=huggingface_auto,model={self.tokenizer}",
            "--data", f"kind=synthetic_text,prompt_tokens=130,output_tokens={OUTPUT}",
            "--output", f"kind=json,path={report}", "--output", f"kind=html,path={self.folder / 'guidellm.html'}",
        )  # fmt: skip
        self.run("guidellm", "export", str(report), "--output", f"kind=csv,path={self.folder / 'guidellm.csv'}")
        (benchmark,) = json.loads(report.read_text())["benchmarks"]
        metrics = benchmark["metrics"]
        totals = metrics["request_totals"]
        return {
            "requests": totals["successful"],
            "failed": totals["errored"] + totals["incomplete"],
            "output tokens": metrics["output_token_count"]["successful"]["mean"],
            "first token ms": metrics["time_to_first_token_ms"]["successful"]["mean"],
            "errors in its report": 0,
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench clients", description=__doc__)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rate", type=float, default=4.0)
    given = parser.parse_args()
    found = install() if given.install else python()
    if found is None:
        sys.exit(f"bench: the clients are not in {place()}: add --install")
    with tempfile.TemporaryDirectory() as name, stack(Path(name)) as url:
        clients = Clients(found.parent, Path(name), requests=given.requests, rate=given.rate)
        rows = {"inference-perf": clients.inference_perf(url), "guidellm": clients.guidellm(url)}
    for tool, row in rows.items():
        print(f"{tool:<16}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    if any(row["failed"] or row["errors in its report"] or row["output tokens"] != OUTPUT for row in rows.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Build what the tests need and the cache lacks: say what and for how long, then show that it goes on.

`python -m tools.prepare` builds; with `--announce` it only says what it would, and exits 1 if that is worth a run of
its own. The builds themselves belong to their scripts and tests, and take the same locks: a test that needs one waits
for it and never builds it a second time. One after the other, since Go uses all cores for each.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import gotools
from tests.browser import assets as browser
from tests.cluster import assets as plane
from tests.istio import assets as istio
from tools import compiled

from pointsman.local import envoy

TOOLS = Path(__file__).parent
ALONG = 1  # minutes of building that the tests which need it do themselves: to split a run costs more
EVERY = 60.0  # seconds between lines about a build that goes on
_ENVOY = "import os, sys; from pointsman.local.envoy import find; find(os.environ, say=lambda _: None)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One thing that is built once per machine."""

    name: str
    minutes: int  # on two idle cores
    command: tuple[str, ...]
    present: Callable[[Mapping[str, str]], bool]
    go: bool = True


def _tool(name: str) -> Build:
    command = (sys.executable, "-m", "tests.gotools", name)
    return Build(name=name, minutes=1, command=command, present=lambda env: gotools.place(name, env).exists())


BUILDS = (
    Build(
        name=f"Envoy {envoy.VERSION}",
        minutes=1,
        command=(sys.executable, "-c", _ENVOY),
        present=envoy.is_there,
        go=False,
    ),
    Build(
        name="Debian's Chromium and Prometheus",
        minutes=1,
        command=(str(TOOLS / "browser" / "build"),),
        present=lambda env: not browser.possible(env) or browser.built(env) is not None,
        go=False,
    ),
    Build(
        name="the picker's compiled form",
        minutes=1,
        command=(sys.executable, "-m", "tools.compiled"),
        present=lambda env: bool(compiled.missing(env)) or compiled.place(env).exists(),
        go=False,
    ),
    _tool("h2spec"),
    _tool("actionlint"),
    Build(
        name="a Kubernetes control plane",
        minutes=9,
        command=(str(TOOLS / "kube" / "build"),),
        present=lambda env: (
            bool(env.get("KUBEBUILDER_ASSETS") or env.get("ENVTEST_URL")) or plane.built(env) is not None
        ),
    ),
    Build(
        name="Istio",
        minutes=6,
        command=(str(TOOLS / "istio" / "build"),),
        present=lambda env: istio.built(env) is not None,
    ),
)


def missing(environment: Mapping[str, str]) -> list[Build]:
    """Return what is to be built here."""
    go = shutil.which("go", path=environment.get("PATH")) is not None
    return [build for build in BUILDS if (go or not build.go) and not build.present(environment)]


def announcement(builds: list[Build], *, cache: Path) -> str:
    """Return what people want to know before they wait."""
    lines = [f"  {build.name}: about {build.minutes} min" for build in builds]
    total = sum(build.minutes for build in builds)
    return "\n".join(
        [
            f"to be built once, into {cache}:",
            *lines,
            f"together about {total} min on two idle cores; beside the tests that need none of it about twice that",
        ]
    )


def run(build: Build, *, say: Callable[[str], None]) -> bool:
    """Build one thing with a line a minute; return whether it is there."""
    began = time.monotonic()
    say(f"building {build.name}")
    with subprocess.Popen(
        build.command, cwd=TOOLS.parent, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while (code := _wait(process)) is None:
                say(f"still building {build.name}: {(time.monotonic() - began) / 60:.0f} of about {build.minutes} min")
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # compilers and all
            raise
    say(f"{build.name}: {'built' if code == 0 else f'failed with {code}'} after {time.monotonic() - began:.0f} s")
    return code == 0


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(EVERY)
    except subprocess.TimeoutExpired:
        return None


def main(arguments: list[str]) -> int:
    """Announce, or build."""

    def say(line: str) -> None:
        print(f"prepare: {line}", file=sys.stderr, flush=True)

    builds = missing(os.environ)
    if arguments == ["--announce"]:
        if builds:
            say(announcement(builds, cache=envoy.cache_folder(os.environ)))
        return int(sum(build.minutes for build in builds) > ALONG)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = [build for build in builds if not run(build, say=say)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

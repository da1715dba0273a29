"""Helm does the releases: the program on the PATH, or the library that `helm-sdkpy` brings. Nothing else is known of
it here.

Waiting is ours, so no call waits for Pods: a release is written and that is that. Values go by a file that only we can
read, since they may hold what nobody else should.
"""

import asyncio
import json
import os
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pointsman.core.errors import Unavailable, UserError

_SECONDS = 300
_HISTORY = 5


class Helm(Protocol):
    """What the steps need of Helm."""

    async def version(self) -> str:
        """Return which Helm this is."""

    async def upgrade(
        self, release: str, namespace: str, chart: str, *, values: Mapping[str, Any], version: str = ""
    ) -> None:
        """Install or upgrade a release; raises Unavailable with what Helm says."""

    async def rollback(self, release: str, namespace: str, *, revision: int) -> None:
        """Go back to a revision."""

    async def uninstall(self, release: str, namespace: str) -> None:
        """Remove a release; one that is not there is no error."""

    async def pull(self, chart: str, *, version: str, folder: Path) -> Path:
        """Fetch a chart and unpack it into the folder; return where it is."""


def find_helm(kubeconfig: Path | None, *, path: str | None = None) -> Helm:
    """Return the helm on the PATH, else the embedded one; raises UserError when there is neither."""
    program = shutil.which("helm", path=path)
    if program:
        return HelmProgram(program, kubeconfig)
    try:
        import helm_sdkpy  # noqa: F401 - to know whether it is there
    except ImportError:
        raise UserError(
            "there is no helm on the PATH: install Helm 3.17 or newer, or `pip install 'pointsman[helm]'` (Python 3.12)"
        ) from None
    return EmbeddedHelm(kubeconfig)


class HelmProgram:
    """The program."""

    def __init__(self, program: str, kubeconfig: Path | None) -> None:
        self._program = program
        self._kubeconfig = kubeconfig

    async def version(self) -> str:
        return (await self._run("version", "--short")).strip()

    async def upgrade(
        self, release: str, namespace: str, chart: str, *, values: Mapping[str, Any], version: str = ""
    ) -> None:
        with _values_file(values) as file:
            only = ("--version", version) if version else ()
            await self._run(
                *("upgrade", release, chart, "--install", "--namespace", namespace, "--values", str(file)),
                *("--history-max", str(_HISTORY), *only),
            )

    async def rollback(self, release: str, namespace: str, *, revision: int) -> None:
        await self._run("rollback", release, str(revision), "--namespace", namespace)

    async def uninstall(self, release: str, namespace: str) -> None:
        await self._run("uninstall", release, "--namespace", namespace, "--ignore-not-found")

    async def pull(self, chart: str, *, version: str, folder: Path) -> Path:
        only = ("--version", version) if version else ()
        await self._run("pull", chart, *only, "--untar", "--untardir", str(folder))
        return _only_folder(folder, chart)

    async def _run(self, *arguments: str) -> str:
        environment = dict(os.environ)
        if self._kubeconfig is not None:
            environment["KUBECONFIG"] = str(self._kubeconfig)
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                out, complaint = await process.communicate()
        except (TimeoutError, asyncio.CancelledError) as error:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Unavailable(f"helm {arguments[0]} did not end within {_SECONDS} s") from None
        if process.returncode:
            raise Unavailable(f"helm {' '.join(arguments[:2])}: {_sentence(complaint)}")
        return out.decode(errors="replace")


class EmbeddedHelm:
    """Helm as a library in this process, from PyPI's helm-sdkpy."""

    def __init__(self, kubeconfig: Path | None) -> None:
        named = kubeconfig or os.environ.get("KUBECONFIG")
        self._kubeconfig = str(named) if named else None

    async def version(self) -> str:
        import helm_sdkpy

        return f"embedded, {helm_sdkpy.get_version()}"

    async def upgrade(
        self, release: str, namespace: str, chart: str, *, values: Mapping[str, Any], version: str = ""
    ) -> None:
        import helm_sdkpy

        with _said("upgrade", release):
            await helm_sdkpy.Upgrade(self._at(namespace)).run(
                release,
                chart,
                values=dict(values),
                version=version or None,
                install=True,
                wait=False,
                timeout=_SECONDS,
                max_history=_HISTORY,
                disable_openapi_validation=False,
            )

    async def rollback(self, release: str, namespace: str, *, revision: int) -> None:
        import helm_sdkpy

        with _said("rollback", release):
            await helm_sdkpy.Rollback(self._at(namespace)).run(release, revision)

    async def uninstall(self, release: str, namespace: str) -> None:
        import helm_sdkpy

        with _said("uninstall", release):
            try:
                await helm_sdkpy.Uninstall(self._at(namespace)).run(release, wait=False, timeout=_SECONDS)
            except helm_sdkpy.ReleaseNotFoundError:
                return

    async def pull(self, chart: str, *, version: str, folder: Path) -> Path:
        import helm_sdkpy

        with _said("pull", chart):
            await helm_sdkpy.Pull(self._at("default")).run(chart, str(folder), version or None)
        _unpack(folder)
        return _only_folder(folder, chart)

    def _at(self, namespace: str) -> Any:
        import helm_sdkpy

        return helm_sdkpy.Configuration(namespace=namespace, kubeconfig=self._kubeconfig)


@contextmanager
def _said(action: str, what: str) -> Iterator[None]:
    import helm_sdkpy

    try:
        yield
    except helm_sdkpy.HelmError as error:
        raise Unavailable(f"helm {action} {what}: {_sentence(str(error).encode())}") from None


@contextmanager
def _values_file(values: Mapping[str, Any]) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # mode 0600
        json.dump(values, file)
        file.flush()
        yield Path(file.name)


def _unpack(folder: Path) -> None:
    for archive in sorted(folder.glob("*.tgz")):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()


def _only_folder(folder: Path, chart: str) -> Path:
    found = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    if len(found) != 1:
        raise UserError(f"{chart}: is no single chart")
    return found[0]


def _sentence(complaint: bytes) -> str:
    lines = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith("error")] or lines[-1:]
    return " ".join(told).removeprefix("Error: ")[:1000] or "it failed and said nothing"

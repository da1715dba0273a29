"""`pointsman platform`: operators on clusters without OLM, from their bundles to what runs.

Exit 0: it is as asked. Exit 1: something is not well or was refused, and the output says what and why. Exit 2: the
command line or a file is wrong. What a command needs is imported when it runs: a cluster client takes longer to import
than a chart takes to render.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from pointsman.core.errors import UserError

if TYPE_CHECKING:
    from pointsman.platform.folder import ComponentFolder
    from pointsman.platform.session import Session
    from pointsman.platform.spec import Platform
    from pointsman.platform.store import Sources

platform = App(name="platform", help="Install and look after operators on clusters without OLM, from their bundles.")
_HELMFILE = "helmfile.yaml.gotmpl"
Names = Annotated[Sequence[str], Parameter(negative=())]
Flag = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlatformFile:
    """Which platform, and where its bundles come from."""

    file: Annotated[Path, Parameter(name=["--file", "-f"])] = Path("platform.yaml")
    "The platform; the folders of its components are beside it."
    bundles: Annotated[Path | None, Parameter(env_var="POINTSMAN_BUNDLES")] = None
    "Folder of bundles to look in before the registry is asked."
    registry_insecure: bool = False
    "Allow registries without TLS or with untrusted certificates."
    registry_ca: Path | None = None
    "CA certificates of the registry (PEM)."

    def read(self) -> "Platform":
        """Return the platform."""
        from pointsman.platform.spec import read_platform

        return read_platform(self.file)

    def folder(self, name: str) -> "ComponentFolder":
        """Return the folder of a component."""
        from pointsman.platform.folder import read_folder

        return read_folder(self.file.absolute().parent / name)

    def sources(self) -> "Sources":
        """Return where bundles are looked for."""
        from pointsman.bundle.sources.source import Registries
        from pointsman.platform.store import Sources, cache_folder

        registries = Registries(
            insecure=self.registry_insecure, authority=self.registry_ca, environment=dict(os.environ)
        )
        return Sources(registries, bundles=self.bundles, cache=cache_folder(os.environ))


@platform.command
def render(names: Names = (), *, out: Path, where: PlatformFile | None = None) -> int:
    """Write complete charts, one folder for each component, for those who keep them in Git or use helmfile.

    Parameters
    ----------
    names
        Components; else all that have a bundle.
    out
        Folder for the charts; what you added or edited there is kept.
    where
        Which platform.

    """
    from pointsman.platform.render import copy_beside, render_charts
    from pointsman.platform.spec import chosen

    asked = where or PlatformFile()
    described = asked.read()
    every = [each.name for each in described.components]
    for choice in chosen(described, names or every, everything=True):
        folder = asked.folder(choice.folder or choice.name)
        _say(render_charts(folder, asked.sources(), source=choice.source, out=out / folder.name))
    # The helmfiles of the folders know it by this name.
    copy_beside({"platform.yaml": asked.file, _HELMFILE: asked.file.absolute().parent / _HELMFILE}, out)
    return 0


@platform.command
def update_bundle(
    folder: Path,
    version: str,
    *,
    source: str = "",
    catalog: str = "",
    channel: str = "",
    accept_breaking: Flag = False,
    dry_run: Flag = False,
    where: PlatformFile | None = None,
) -> int:
    """Move a component to another version of its bundle: show what changes, then change all of it or nothing.

    Parameters
    ----------
    folder
        The component's folder, in a clone or written by `render`.
    version
        The version to go to, which is also the image's tag.
    source
        Where to take the bundle from instead: folder, OCI layout, saved image, image in a registry.
    catalog
        File-based catalog to take it from.
    channel
        Channel of the catalog; else the package's default.
    accept_breaking
        Go on although a definition changes in ways that existing objects or their readers may not survive.
    dry_run
        Only show what would change.
    where
        Where bundles come from.

    """
    from pointsman.bundle.sources.source import FromCatalog
    from pointsman.platform.folder import read_folder
    from pointsman.platform.render import Move, move_bundle
    from pointsman.platform.store import mend

    asked = where or PlatformFile()
    mend(folder)
    move = Move(version, source=source, catalog=FromCatalog(catalog, channel) if catalog else None)
    prepared = move_bundle(read_folder(folder), asked.sources(), move)
    for line in prepared.update.lines:
        _say(line)
    if prepared.update.breaking and not accept_breaking:
        _say("nothing was changed: say --accept-breaking if the objects on your clusters can bear it")
        return 1
    if dry_run:
        _say("nothing was changed: this was a dry run")
        return 0
    _say(prepared.write())
    return 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OnCluster:
    """Which cluster, how patiently."""

    kubeconfig: Path | None = None
    "Cluster to work on; else KUBECONFIG or the home file, as kubectl takes them."
    timeout: float = 0
    "Seconds to wait for one thing to happen; else what the platform's file says."


@platform.command
def preflight(names: Names = (), *, where: PlatformFile | None = None, cluster: OnCluster | None = None) -> int:
    """Check a cluster before anything is changed; exit 1 if something stands in the way.

    Parameters
    ----------
    names
        Components; else all that `deploy --all` would install.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        findings = await session.preflight()
        for each in findings:
            _say(str(each))
        return int(any(each.verdict == "fail" for each in findings))

    return _with(where, cluster, work, names=names, everything=True)


@platform.command
def deploy(
    names: Names = (),
    *,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    part: Literal["all", "before", "after"] = "all",
    accept_breaking: Flag = False,
    where: PlatformFile | None = None,
    cluster: OnCluster | None = None,
) -> int:
    """Install components, or bring them up to date; an interrupted run resumes where it stopped.

    Parameters
    ----------
    names
        Components; else those that the file has for `deploy`.
    all_
        Also those that the file has for `deploy-all`.
    part
        Only what comes before the Helm release, or after it: for helmfile's hooks.
    accept_breaking
        Change definitions also in ways that existing objects may not survive.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        from pointsman.platform.deploy import Rules

        return await session.deploy(Rules(part=part, accept_breaking=accept_breaking))

    return _with(where, cluster, work, names=names, everything=all_)


@platform.command
def upgrade(
    names: Names = (),
    *,
    rollback: Flag = False,
    accept_breaking: Flag = False,
    where: PlatformFile | None = None,
    cluster: OnCluster | None = None,
) -> int:
    """Upgrade installed components to the versions of their folders, or take the last upgrade back.

    Parameters
    ----------
    names
        Components; else all that are installed.
    rollback
        Roll back to the previous Helm release; definitions stay as they are.
    accept_breaking
        Change definitions also in ways that existing objects may not survive.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        from pointsman.platform.deploy import Rules

        if rollback:
            return await session.roll_back()
        return await session.deploy(Rules(accept_breaking=accept_breaking), only=lambda _, row: bool(row.upgrade))

    return _with(where, cluster, work, names=names or _every(where), everything=True)


@platform.command
def status(names: Names = (), *, where: PlatformFile | None = None, cluster: OnCluster | None = None) -> int:
    """Show what is installed, by whom, whether it is healthy or why not, and what it can be upgraded to.

    Parameters
    ----------
    names
        Components; else all of the file.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        from pointsman.platform.observed import table

        rows = await session.status()
        sys.stdout.write(table(rows))
        return int(any(row.problems for row in rows))

    return _with(where, cluster, work, names=names or _every(where), say=_note)


@platform.command
def undeploy(
    names: Names = (), *, cascade: Flag = False, where: PlatformFile | None = None, cluster: OnCluster | None = None
) -> int:
    """Remove what `deploy` installed and nothing else; what is left is listed with the reason.

    Parameters
    ----------
    names
        Components; else all of the file.
    cascade
        Delete definitions with the objects that are left of them.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        left = await session.undeploy(cascade=cascade)
        for each in left:
            _say(each)
        return 0

    return _with(where, cluster, work, names=names or _every(where))


@platform.command
def pull_secret(names: Names = (), *, where: PlatformFile | None = None, cluster: OnCluster | None = None) -> int:
    """Copy the current registry credentials into the namespaces of the platform, for example after a password change.

    Parameters
    ----------
    names
        Components; else those that the file has for `deploy`.
    where
        Which platform.
    cluster
        Which cluster.

    """
    return _with(where, cluster, lambda session: session.pull_secret(), names=names)


@platform.command
def debug_bundle(
    *, out: Path = Path("platform-debug.tar.gz"), where: PlatformFile | None = None, cluster: OnCluster | None = None
) -> int:
    """Collect what helps to find out what is wrong, without the content of Secrets.

    Parameters
    ----------
    out
        The archive to write.
    where
        Which platform.
    cluster
        Which cluster.

    """

    async def work(session: "Session") -> int:
        from pointsman.platform.debug import write_archive

        files = await session.collect()
        write_archive(files, out)
        _say(f"{out}: {len(files)} files")
        return 0

    return _with(where, cluster, work, names=_every(where))


def _with(
    where: PlatformFile | None,
    cluster: OnCluster | None,
    work: "Callable[[Session], Awaitable[int]]",
    *,
    names: Sequence[str] = (),
    everything: bool = False,
    say: "Callable[[str], None] | None" = None,
) -> int:
    import asyncio

    from pointsman.platform.session import Asked, open_session

    asked, at = where or PlatformFile(), cluster or OnCluster()
    described = asked.read()
    if at.timeout < 0:
        raise UserError(f"--timeout {at.timeout:g} is no time to wait: write a number above 0")
    wanted = Asked(described, asked.file.absolute().parent, asked.sources(), names, everything)
    wanted.choices()  # a name that is wrong is said before a cluster is asked

    async def main() -> int:
        timeout = at.timeout or described.timeout
        async with open_session(wanted, kubeconfig=at.kubeconfig, timeout=timeout, say=say or _say) as session:
            return await work(session)

    return asyncio.run(main())


def _note(line: str) -> None:
    """Say what is no part of the answer."""
    sys.stderr.write(f"{line}\n")


def _every(where: PlatformFile | None) -> list[str]:
    return [each.name for each in (where or PlatformFile()).read().components]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()

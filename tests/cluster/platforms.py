"""A platform for tests: a component made of a small bundle, the cluster of a test, and ways to cut a run."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.unit.platform.made import bundle_folder, component

from pointsman.platform.deploy import Rules
from pointsman.platform.session import Asked, Session, open_session
from pointsman.platform.spec import read_platform
from pointsman.platform.store import Sources


class Killed(BaseException):
    """The process ends here."""


@dataclass
class SmallPlatform:
    """One component, its bundles, and what was said."""

    root: Path
    plane: ControlPlane
    said: list[str] = field(default_factory=list)
    kill_at: str = ""
    timeout: float = 60.0
    at: Callable[[str], None] = lambda _: None

    def write(self, name: str, **spec: Any) -> None:
        """Write a platform whose one component has this name and namespace."""
        folder = component(self.root, name=name, namespace=name, **spec)
        (folder / "manifests-postsync").mkdir()
        document = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "first"}, "y": "x"}
        (folder / "manifests-postsync" / "widget.yaml").write_text(json.dumps(document))
        file = {"components": [{"name": name}], "pullSecret": {"from": "none"}}
        (self.root / "platform.yaml").write_text(json.dumps(file))
        bundle_folder(self.root / "bundles")

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open a session, as a command does."""
        file = self.root / "platform.yaml"
        asked = Asked(read_platform(file), self.root, Sources(bundles=self.root / "bundles"))
        config = self.plane.kubeconfig("admin")
        async with open_session(asked, kubeconfig=config, timeout=self.timeout, say=self._say) as session:
            yield session

    async def deploy(self, **rules: Any) -> int:
        """Deploy once, and return the exit code."""
        self.said.clear()
        async with self.session() as session:
            return await session.deploy(Rules(**rules))

    async def undeploy(self, *, cascade: bool = False) -> list[str]:
        self.said.clear()
        async with self.session() as session:
            return await session.undeploy(cascade=cascade)

    def _say(self, line: str) -> None:
        self.said.append(line)
        self.at(line)
        if self.kill_at and line.endswith(self.kill_at):
            raise Killed

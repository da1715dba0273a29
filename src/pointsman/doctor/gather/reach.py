"""How a port of a Pod is reached from here: by the Pod's own address, else through `kubectl port-forward`.

Inside a cluster, or on its node, the address works. From a desk it does not, and a proxy's admin port listens on its
Pod's loopback only; then kubectl, which whoever looks after a cluster has, opens the way. It runs for as long as the
doctor looks.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from pointsman.core.kinds import Object, key_of
from pointsman.core.numbers import whole
from pointsman.doctor.cluster.objects import at
from pointsman.render.envoy.addresses import Address

_DIAL_SECONDS = 1.0
_FORWARD_SECONDS = 10.0
_REFUSED = "connection refused: nobody listens there"


class Away(OSError):
    """A port cannot be reached; the message says why. `refused` is when its Pod is reached and nobody listens there."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Reach:
    """Ways to ports of Pods, kept while they are used."""

    def __init__(self, kubectl: Sequence[str]) -> None:
        self._kubectl = tuple(kubectl)
        self._known: dict[tuple[str, str, int], Address] = {}
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def address(self, pod: Object, port: int) -> Address:
        """Return where a Pod's port is from here. Raises Away."""
        key = key_of(pod)
        where = (key.namespace, key.name, port)
        if where not in self._known:
            direct = Address(str(at(pod, "status", "podIP") or ""), port)
            answer = await _dial(direct) if direct.host else "it has no address"
            if not answer:
                self._known[where] = direct
            elif self._kubectl:
                self._known[where] = await self._open.enter_async_context(self._forward(*where))
            else:
                refused = answer == _REFUSED
                raise Away(answer if refused else f"{answer}, and there is no kubectl to go through", refused=refused)
        return self._known[where]

    @asynccontextmanager
    async def _forward(self, namespace: str, name: str, port: int) -> AsyncIterator[Address]:
        command = [*self._kubectl, "port-forward", "-n", namespace, f"pod/{name}", f":{port}", "--address=127.0.0.1"]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            try:
                async with asyncio.timeout(_FORWARD_SECONDS):
                    said = (await process.stdout.readline()).decode(errors="replace")
                    why = "" if said else (await process.stderr.readline()).decode(errors="replace").strip()
            except TimeoutError:
                said, why = "", f"kubectl port-forward said nothing within {_FORWARD_SECONDS:g} s"
            local = whole(said.partition("127.0.0.1:")[2].partition(" ")[0], most=65_535)
            if not local:
                raise Away(why or "kubectl port-forward did not say where")
            yield Address("127.0.0.1", local)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def kubectl(kubeconfig: Path | None) -> tuple[str, ...]:
    """Return how kubectl is called for a cluster; nothing when there is none."""
    program = shutil.which("kubectl")
    if program is None:
        return ()
    return (program, *(("--kubeconfig", str(kubeconfig)) if kubeconfig else ()))


async def _dial(address: Address) -> str:
    """Return why an address does not take connections; nothing when it does."""
    try:
        async with asyncio.timeout(_DIAL_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return _REFUSED
    except OSError as error:
        return f"{address} cannot be reached from here ({error or type(error).__name__})"
    writer.close()
    return ""

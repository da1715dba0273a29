"""The picker's certificate is replaced under load, as kubelet does it with a Secret: nobody notices, and h2 stays."""

import asyncio
import ssl
from pathlib import Path

from tests.bystander import completions, watched
from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL
from tests.waiting import eventually

from pointsman.core.certificates import self_signed
from pointsman.operator.probes import handshake


class MountedSecret:
    """A folder as kubelet mounts a Secret: links to files of the current version, exchanged all at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir()
        self.write(*self_signed())
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(f"..data/{name}")

    def write(self, certificate: bytes, key: bytes) -> bytes:
        """Take another version into use; return its certificate as a peer sees it, if it is one."""
        self._version += 1
        version = self.folder / f"..{self._version}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.folder / "..data")
        return ssl.PEM_cert_to_DER_cert(certificate.decode()) if b"BEGIN" in certificate else b""


async def test_rotations_under_load(start_lab: StartLab, tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret")
    lab = await start_lab(tls=True, picker=(f"--cert-path={secret.folder}", "--enable-cert-reload"))
    picker = lab.picker_addresses[0]
    shown: list[bytes] = []

    async def shows(certificate: bytes) -> None:
        found = await handshake(picker.host, picker.port)
        assert found.problem == ""
        assert found.certificate == certificate
        shown.append(certificate)

    async def knock(over: asyncio.Event) -> int:
        """Make handshakes all the while: each must speak h2, whatever certificate it meets."""
        count = 0
        while not over.is_set():
            found = await handshake(picker.host, picker.port)
            assert found.problem == "", found.problem
            count += 1
        return count

    async with completions(lab.url, model=MODEL) as send, watched(send) as seen:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            knocking = tasks.create_task(knock(over))
            for _ in range(3):
                certificate = secret.write(*self_signed())
                await eventually(lambda certificate=certificate: shows(certificate))  # type: ignore[misc]
            # A pair that does not belong together changes nothing.
            secret.write(self_signed()[0], self_signed()[1])
            secret.write(b"nonsense", b"nonsense")
            await asyncio.sleep(1)  # what does not happen can only be waited for
            await shows(certificate)
            over.set()
    print(f"{seen}; {knocking.result()} handshakes")
    assert len(set(shown)) == 3
    assert knocking.result() > 3

"""Where the control plane's programs come from, in order; nothing here is started."""

import hashlib
import io
import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cluster.assets import NEEDED, Missing, _key, find


def fill(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name in NEEDED:
        (directory / name).touch()
    return directory


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A tools/kube whose build script makes empty programs."""
    directory = tmp_path / "tools"
    directory.mkdir()
    (directory / "go.mod").write_text("module x\n")
    (directory / "go.sum").touch()
    lines = ["#!/bin/sh", "set -e", 'at="$HOME/built"', 'mkdir -p "$at"', *(f'touch "$at/{name}"' for name in NEEDED)]
    script = directory / "build"
    script.write_text("\n".join([*lines, "echo building >&2", 'echo "$at"', ""]))
    script.chmod(0o755)
    return directory


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def archive() -> Iterator[tuple[str, bytes]]:
    """An archive as the envtest project publishes it, served on loopback."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in NEEDED:
            member = tarfile.TarInfo(f"controller-tools/envtest/{name}")
            member.size = 4
            tar.addfile(member, io.BytesIO(b"prog"))
    body = buffer.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/envtest.tar.gz" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/envtest.tar.gz", body
    server.shutdown()
    server.server_close()


def test_the_named_directory_comes_first(tmp_path: Path, tools: Path, environment: dict[str, str]) -> None:
    fill(tmp_path / "cache" / "pointsman" / f"kube-{_key(tools)}-go1.26.8")
    named = fill(tmp_path / "named")
    found = find({**environment, "KUBEBUILDER_ASSETS": str(named)}, tools=tools)
    assert (found.directory, found.origin) == (named, "KUBEBUILDER_ASSETS")


def test_a_named_directory_that_is_not_whole_is_an_error_not_a_detour(
    tmp_path: Path, tools: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(Missing, match=r"KUBEBUILDER_ASSETS=.* lacks one of etcd"):
        find({**environment, "KUBEBUILDER_ASSETS": str(tmp_path)}, tools=tools)


def test_the_cache_comes_next_and_needs_no_compiler(tmp_path: Path, tools: Path, environment: dict[str, str]) -> None:
    cached = fill(tmp_path / "cache" / "pointsman" / f"kube-{_key(tools)}-go1.26.8")
    fill(tmp_path / "cache" / "pointsman" / "kube-anotherlock-go1.26.8")
    found = find({**environment, "ENVTEST_URL": "http://127.0.0.1:9/"}, tools=tools)
    assert (found.directory, found.origin) == (cached, "cache")


def test_half_a_build_is_not_taken(tmp_path: Path, tools: Path, environment: dict[str, str]) -> None:
    fill(tmp_path / "cache" / "pointsman" / f"kube-{_key(tools)}-go1.26.8.partial.77")
    with pytest.raises(Missing):
        find({**environment, "PATH": ""}, tools=tools)


def test_the_archive(tools: Path, environment: dict[str, str], archive: tuple[str, bytes]) -> None:
    url, body = archive
    digest = hashlib.sha512(body).hexdigest()
    configured = {**environment, "ENVTEST_URL": url, "ENVTEST_SHA512": digest}
    found = find(configured, tools=tools)
    assert found.origin == "envtest archive"
    assert (found.directory / "etcd").read_bytes() == b"prog"
    assert (found.directory / "etcd").stat().st_mode & 0o100
    assert found.find("kwok") is None
    again = find({**configured, "ENVTEST_SHA512": "0" * 128}, tools=tools)  # it is there: nothing is fetched
    assert again == found
    shutil.rmtree(found.directory)
    with pytest.raises(Missing, match="is not the archive that ENVTEST_SHA512 names"):
        find({**configured, "ENVTEST_SHA512": "0" * 128}, tools=tools)


def test_the_build_comes_last(tmp_path: Path, tools: Path, environment: dict[str, str]) -> None:
    compiler = tmp_path / "bin" / "go"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    found = find({**environment, "PATH": f"{compiler.parent}:/usr/bin:/bin"}, tools=tools)
    assert (found.directory, found.origin) == (tmp_path / "built", "Go modules")


def test_where_there_is_nothing_the_sentence_says_how_to_get_it(tools: Path, environment: dict[str, str]) -> None:
    with pytest.raises(Missing, match=r"install Go .* KUBEBUILDER_ASSETS .* ENVTEST_URL"):
        find({**environment, "PATH": ""}, tools=tools)

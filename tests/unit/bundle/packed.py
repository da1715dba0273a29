"""Images for tests: layers as tar archives, an OCI layout, what `docker save` writes, and a registry on loopback."""

import base64
import gzip
import hashlib
import io
import json
import ssl
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


def tar(entries: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """Return an archive; a TarInfo stands for itself, whatever it is."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in entries.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Packed:
    """An image as blobs."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    manifest: bytes = b""

    def add(self, content: bytes) -> dict[str, Any]:
        self.blobs[digest(content)] = content
        return {"digest": digest(content), "size": len(content), "mediaType": "application/octet-stream"}


def packed(*layers: bytes, compress: bool = True) -> Packed:
    """Return an image of these layers."""
    image = Packed()
    descriptors = [image.add(gzip.compress(each, mtime=0) if compress else each) for each in layers]
    config = image.add(
        json.dumps({"rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]}}).encode()
    )
    image.manifest = json.dumps({"schemaVersion": 2, "config": config, "layers": descriptors}).encode()
    image.add(image.manifest)
    return image


def layout(image: Packed, folder: Path, *, tag: str = "v1", index: bool = False) -> Path:
    """Write an OCI layout."""
    top = image.manifest
    if index:
        other = {"digest": digest(b"absent"), "size": 1, "platform": {"os": "linux", "architecture": "s390x"}}
        fitting = {"digest": digest(top), "size": len(top), "platform": {"os": "linux", "architecture": "amd64"}}
        top = json.dumps({"schemaVersion": 2, "manifests": [other, fitting]}).encode()
        image.add(top)
    for name, content in image.blobs.items():
        path = folder / "blobs" / name.replace(":", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    annotations = {"org.opencontainers.image.ref.name": tag}
    manifests = [{"digest": digest(top), "size": len(top), "annotations": annotations}]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def saved(layers: list[bytes], path: Path, *, tag: str = "example/thing:v1", diff_ids: list[str] | None = None) -> Path:
    """Write what `docker save` writes."""
    config = json.dumps({"rootfs": {"diff_ids": diff_ids or [digest(each) for each in layers]}}).encode()
    names = [f"{at}/layer.tar" for at in range(len(layers))]
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": names}]).encode()
    content = tar({"manifest.json": manifest, "config.json": config, **dict(zip(names, layers, strict=True))})
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Registry:
    """A registry on loopback, and what it was asked."""

    images: dict[str, Packed] = field(default_factory=dict)
    user: str = ""
    password: str = ""
    identity_token: str = ""
    basic: bool = False
    redirect: str = ""
    cut: int = 0
    "Bytes of a blob after which the connection breaks."
    drip: float = 0
    "Seconds between the bytes of a blob."
    port: int = 0
    scheme: str = "http"
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"


@contextmanager
def serving(registry: Registry, *, tls: tuple[Path, Path] | None = None) -> Iterator[Registry]:
    """Serve images; with a user, only to who has a token for the password (or the password itself, with `basic`)."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that is given
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            authorization = self.headers.get("Authorization", "")
            registry.asked.append((self.path, authorization))
            if url.path == "/token":
                pair = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
                self._token(granted=authorization == f"Basic {pair}")
            elif not self._allowed(authorization):
                self._challenge()
            elif url.path == "/v2/":
                self._answer(200, b"{}")
            elif registry.redirect and "/blobs/" in url.path:
                self._answer(307, b"", {"Location": registry.redirect + self.path})
            else:
                self._image(url.path)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            registry.asked.append((self.path, json.dumps(form)))
            self._token(granted=form.get("refresh_token") == [registry.identity_token])

        def _allowed(self, authorization: str) -> bool:
            pair = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
            wanted = f"Basic {pair}" if registry.basic else "Bearer granted"
            return not (registry.user or registry.identity_token) or authorization == wanted

        def _challenge(self) -> None:
            realm = f"{registry.scheme}://{registry.host}/token"
            challenge = (
                "Basic realm=x" if registry.basic else f'Bearer realm="{realm}",service="s",scope="repository:x:pull"'
            )
            self._answer(401, b"", {"WWW-Authenticate": challenge})

        def _token(self, *, granted: bool) -> None:
            self._answer(200 if granted else 401, json.dumps({"token": "granted"}).encode() if granted else b"")

        def _image(self, path: str) -> None:
            _, _, rest = path.partition("/v2/")
            for noun in ("/manifests/", "/blobs/"):
                name, found, version = rest.partition(noun)
                image = registry.images.get(name)
                if found and image is not None:
                    content = (
                        image.manifest if noun == "/manifests/" and ":" not in version else image.blobs.get(version)
                    )
                    if content and noun == "/blobs/" and (registry.cut or registry.drip):
                        self._faulty(content)
                    else:
                        kind = MANIFEST_TYPE if noun == "/manifests/" else "application/octet-stream"
                        self._answer(200 if content is not None else 404, content or b"", {"Content-Type": kind})
                    return
            self._answer(404, b"")

        def _faulty(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for at in range(len(body[: registry.cut or len(body)])):
                self.wfile.write(body[at : at + 1])
                if registry.drip:
                    self.wfile.flush()
                    time.sleep(registry.drip)
            self.close_connection = True

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        registry.scheme = "https"
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""An image is what its digests say, and the same content gives the same image."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tools.node.image import Layer, write_image


@pytest.fixture
def content(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "program").write_text("#!/bin/sh\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "x.pyc").write_text("")
    return tree


def write(target: Path, tree: Path) -> dict[str, bytes]:
    layers = [Layer(tree, at="/opt/x"), Layer(tree / "bin" / "program", at="/program")]
    write_image(target, name="localhost/x:1", layers=layers, command=["/program"], environment={"A": "b"}, user="1:1")
    with tarfile.open(target) as tar:
        members = ((member.name, tar.extractfile(member)) for member in tar.getmembers())
        return {name: file.read() for name, file in members if file is not None}


def test_every_blob_has_the_digest_that_leads_to_it(tmp_path: Path, content: Path) -> None:
    files = write(tmp_path / "x.tar", content)
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"

    def blob(descriptor: dict[str, Any]) -> bytes:
        found = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert len(found) == descriptor["size"]
        return found

    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/program"]
    assert "A=b" in config["config"]["Env"]
    assert config["config"]["User"] == "1:1"
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    (tmp_path / "layer.tar").write_bytes(blob(manifest["layers"][0]))
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert tar.getnames() == ["opt/x/bin", "opt/x/bin/program"]
        assert {(member.uid, member.mtime) for member in tar.getmembers()} == {(0, 0)}


def test_the_same_content_gives_the_same_image(tmp_path: Path, content: Path) -> None:
    first = write(tmp_path / "one.tar", content)
    (content / "bin" / "program").touch()
    assert write(tmp_path / "two.tar", content) == first

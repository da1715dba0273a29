"""Every kind of source gives the same bundle; a blob that is not what its digest says gives none."""

import gzip
import json
from pathlib import Path

import pytest
from tests.unit.bundle.made import files
from tests.unit.bundle.packed import Packed, Registry, digest, layout, packed, saved, serving, tar

from pointsman.bundle.sources.source import FromCatalog, Registries, read_bundle
from pointsman.core.errors import UserError

INSECURE = Registries(insecure=True)


def layers() -> list[bytes]:
    content = files()
    return [tar({p: t for p, t in content.items() if p.startswith("metadata")}), tar(content)]


def name_of(source: str | Path, **options: object) -> str:
    return read_bundle(str(source), registries=INSECURE, **options).csv.name  # type: ignore[arg-type]


def test_a_folder(tmp_path: Path) -> None:
    for path, text in files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(text)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "unread").symlink_to("/etc/passwd")
    assert name_of(tmp_path) == "thing.v1.2.3"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b" / "manifests").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text("kind: Secret")
    (tmp_path / "b" / "manifests" / "x.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(UserError, match=r"x.yaml: is a link that leads out"):
        name_of(tmp_path / "b")


@pytest.mark.parametrize("index", [False, True])
def test_an_oci_layout(tmp_path: Path, index: bool) -> None:
    folder = layout(packed(*layers()), tmp_path / "layout", index=index)
    assert name_of(folder) == name_of(f"oci:{folder}:v1") == name_of(f"{folder}:v1") == "thing.v1.2.3"
    with pytest.raises(UserError, match="has no image 'v2': there is v1"):
        name_of(f"{folder}:v2")


@pytest.mark.parametrize("name", ["saved.tar", "saved.tar.gz"])
def test_a_saved_image(tmp_path: Path, name: str) -> None:
    path = saved(layers(), tmp_path / name)
    assert name_of(path) == name_of(f"docker-archive:{path}:example/thing:v1") == "thing.v1.2.3"


def test_an_archive_of_a_layout(tmp_path: Path) -> None:
    folder = layout(packed(*layers()), tmp_path / "layout")
    path = tmp_path / "image.tar"
    path.write_bytes(tar({str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}))
    assert name_of(f"oci-archive:{path}") == "thing.v1.2.3"


def test_a_blob_with_another_digest_is_refused_by_its_name(tmp_path: Path) -> None:
    image = packed(*layers())
    last = json.loads(image.manifest)["layers"][-1]["digest"]
    folder = layout(image, tmp_path / "layout")
    (folder / "blobs" / last.replace(":", "/")).write_bytes(gzip.compress(tar({"manifests/evil.yaml": b"kind: Pod"})))
    with pytest.raises(UserError, match=f"{last}: its content has another digest"):
        name_of(folder)
    path = saved(layers(), tmp_path / "saved.tar", diff_ids=[digest(b"a"), digest(b"b")])
    with pytest.raises(UserError, match=r"0/layer.tar: its content has another digest"):
        name_of(path)


def test_a_saved_image_may_have_compressed_layers_which_are_checked_too(tmp_path: Path) -> None:
    plain, zipped = layers(), [gzip.compress(each) for each in layers()]
    assert name_of(saved(zipped, tmp_path / "a.tar", diff_ids=[digest(each) for each in plain])) == "thing.v1.2.3"
    with pytest.raises(UserError, match=r"0/layer.tar: its content has another digest"):
        name_of(saved(zipped, tmp_path / "b.tar", diff_ids=[digest(b"a"), digest(b"b")]))
    with pytest.raises(UserError, match=r"0/layer.tar: is broken: "):
        name_of(saved([zipped[0][:-9], zipped[1]], tmp_path / "c.tar"))


@pytest.mark.parametrize(
    "source", ["./absent/bundle", "../absent", "/absent/bundle", "oci:absent", "oci-archive:a.tar"]
)
def test_a_path_that_is_not_there_is_not_taken_for_an_image(source: str) -> None:
    with pytest.raises(UserError, match="there is no such folder or file"):
        name_of(source)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param({}, "neither an OCI layout nor a saved image", id="an empty archive"),
        pytest.param({"../x": b""}, r"\.\./x: leads out", id="traversal"),
        pytest.param({"manifest.json": b"{}"}, "manifest.json: Expected `array`", id="no list of images"),
        pytest.param(
            {"manifest.json": b'[{"Config": "../../etc/passwd"}]'}, "etc/passwd: leads out", id="config outside"
        ),
        pytest.param({"index.json": b'{"manifests": []}'}, "its index is empty", id="an empty index"),
        pytest.param({"index.json": b'{"manifests": [{"digest": "md5:1"}]}'}, "'md5:1' is no digest", id="odd digest"),
        pytest.param(
            {"index.json": b'{"manifests": [{"digest": "sha256:../x"}]}'}, "is no digest", id="path as digest"
        ),
    ],
)
def test_an_archive_that_is_no_image(tmp_path: Path, content: dict[str, bytes], complaint: str) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar(content))
    with pytest.raises(UserError, match=complaint):
        name_of(path)


def test_another_kind_of_image_says_so(tmp_path: Path) -> None:
    folder = layout(packed(tar({"bin/sh": b"x"})), tmp_path / "layout")
    with pytest.raises(UserError, match="has nothing under manifests/ or metadata/"):
        name_of(folder)


def catalog(image: str) -> bytes:
    def bundle(version: str) -> dict[str, object]:
        stated = [{"type": "olm.package", "value": {"packageName": "thing", "version": version}}]
        return {
            "schema": "olm.bundle",
            "name": f"thing.v{version}",
            "package": "thing",
            "image": image,
            "properties": stated,
        }

    entries = [{"name": "thing.v1.2.3", "replaces": "thing.v1.2.2"}, {"name": "thing.v1.2.2"}]
    documents = [
        {"schema": "olm.package", "name": "thing", "defaultChannel": "stable"},
        {"schema": "olm.channel", "name": "stable", "package": "thing", "entries": entries},
        bundle("1.2.3"),
        bundle("1.2.2"),
    ]
    return "\n".join(map(json.dumps, documents)).encode()


def test_a_catalog_in_a_registry_leads_to_a_bundle_in_a_registry() -> None:
    registry = Registry(images={"library/bundle": packed(*layers())})
    with serving(registry):
        image = f"{registry.host}/library/bundle:v1"
        registry.images["library/catalog"] = packed(tar({"configs/thing/catalog.json": catalog(image)}))
        where = FromCatalog(f"{registry.host}/library/catalog:v4")
        assert name_of("thing", catalog=where) == name_of("thing:1.2.2", catalog=where) == "thing.v1.2.3"
        with pytest.raises(UserError, match=r"has no version 9\.9\.9: there is 1\.2\.3, 1\.2\.2"):
            name_of("thing:9.9.9", catalog=where)


def test_a_catalog_in_a_folder_with_objects_inside(tmp_path: Path) -> None:
    import base64

    objects = [
        {"type": "olm.bundle.object", "value": {"data": base64.b64encode(text).decode()}}
        for path, text in files().items()
        if path.startswith("manifests/")
    ]
    documents = [json.loads(line) for line in catalog("").decode().splitlines()]
    documents[2]["properties"] += objects
    (tmp_path / "catalog.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    assert name_of("thing", catalog=FromCatalog(str(tmp_path))) == "thing.v1.2.3"


def test_the_index_of_an_image_is_asked_for_as_a_manifest() -> None:
    image = packed(*layers())
    inner = image.manifest
    fitting = {"digest": digest(inner), "size": len(inner), "platform": {"os": "linux", "architecture": "amd64"}}
    outer = Packed(blobs=dict(image.blobs), manifest=json.dumps({"manifests": [fitting]}).encode())
    with serving(Registry(images={"library/bundle": outer})) as registry:
        assert name_of(f"{registry.host}/library/bundle:v1") == "thing.v1.2.3"
    assert any(path.endswith(f"/manifests/{digest(inner)}") for path, _ in registry.asked)

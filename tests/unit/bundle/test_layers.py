"""Layers: what an image shows is what we get, and what an archive must not hold is refused with the entry's name."""

import gzip
import io
import tarfile
import tracemalloc

import pytest
from tests.unit.bundle.packed import tar

from pointsman.bundle.sources.layers import Layer, unpack
from pointsman.bundle.sources.limits import BUNDLE_LIMITS, ImageLimits
from pointsman.core.errors import UserError

WANTED = ("manifests/", "metadata/")


def files(*layers: bytes, limits: ImageLimits = BUNDLE_LIMITS) -> dict[str, bytes]:
    named = (Layer(f"layer {at}", io.BytesIO(content)) for at, content in enumerate(layers))
    return unpack(named, wanted=WANTED, limits=limits)


def entry(name: str, kind: bytes, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def test_a_later_layer_wins_and_compression_does_not_matter() -> None:
    first = tar({"manifests/a.yaml": b"old", "./manifests/b.yaml": b"b", "usr/bin/opm": b"x"})
    second = gzip.compress(tar({"manifests/a.yaml": b"new"}))
    assert files(first, second) == {"manifests/a.yaml": b"new", "manifests/b.yaml": b"b"}


def test_whiteouts_take_away_what_older_layers_had() -> None:
    first = tar({"manifests/a.yaml": b"a", "manifests/b.yaml": b"b", "metadata/annotations.yaml": b"c"})
    assert set(files(first, tar({"manifests/.wh.a.yaml": b""}))) == {"manifests/b.yaml", "metadata/annotations.yaml"}
    assert set(files(first, tar({".wh.manifests": b""}))) == {"metadata/annotations.yaml"}
    opaque = tar({"manifests/new.yaml": b"n", "manifests/.wh..wh..opq": b""})
    assert set(files(first, opaque)) == {"manifests/new.yaml", "metadata/annotations.yaml"}


def test_a_file_in_the_place_of_a_folder_hides_it() -> None:
    assert files(tar({"manifests/a/b": b"1"}), tar({"manifests/a": b"2"})) == {"manifests/a": b"2"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(tar({"../escape": b"x"}), r"layer 0: \.\./escape: leads out", id="traversal"),
        pytest.param(tar({"manifests/../../x": b"x"}), r"manifests/\.\./\.\./x: leads out", id="traversal inside"),
        pytest.param(tar({"/etc/passwd": b"x"}), "layer 0: /etc/passwd: leads out", id="absolute"),
        pytest.param(
            tar({"l": entry("manifests/l.yaml", tarfile.SYMTYPE, linkname="/etc/passwd")}),
            "manifests/l.yaml: is a link to /etc/passwd",
            id="symbolic link",
        ),
        pytest.param(
            tar({"l": entry("manifests/l.yaml", tarfile.LNKTYPE, linkname="usr/x")}),
            "is a link to usr/x",
            id="hard link",
        ),
        pytest.param(tar({"d": entry("manifests/d", tarfile.CHRTYPE)}), "manifests/d: is no plain file", id="device"),
        pytest.param(tar({"d": entry("manifests/f", tarfile.FIFOTYPE)}), "manifests/f: is no plain file", id="fifo"),
        pytest.param(tar({"manifests/a": b"x" * 100})[:600], "layer 0: .*(broken after|ends early)", id="cut"),
        pytest.param(
            gzip.compress(tar({"manifests/a": b"x" * 9999}))[:-20], "layer 0: is broken", id="cut, compressed"
        ),
        pytest.param(b"\x1f\x8bnonsense", "layer 0: is broken after its beginning", id="no gzip"),
        pytest.param(b"\x28\xb5\x2f\xfdnonsense", "layer 0: is compressed with zstd", id="zstd"),
        pytest.param(b"nonsense" * 200, "layer 0: is broken after its beginning", id="no archive"),
    ],
)
def test_a_hostile_or_broken_archive_is_refused_by_name(content: bytes, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        files(content)


def test_links_outside_of_the_wanted_folders_do_not_matter() -> None:
    layer = tar({"l": entry("bin/sh", tarfile.SYMTYPE, linkname="/bin/busybox"), "manifests/a": b"1"})
    assert files(layer) == {"manifests/a": b"1"}


def test_a_bomb_costs_what_the_limit_says_and_no_more() -> None:
    bomb = gzip.compress(tar({"usr/bin/zeros": b"\0" * (64 * 1024 * 1024)}), compresslevel=9)
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(UserError, match="layer 0: unpacks to more than 8388608 bytes, after usr/bin/zeros"):
        files(bomb, limits=ImageLimits(unpacked=8 * 1024 * 1024))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 1024 * 1024


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        pytest.param(ImageLimits(entries=2), "manifests/c: more than 2 entries", id="entries"),
        pytest.param(ImageLimits(file=5), "manifests/a: has 10 bytes, more than 5", id="one file"),
        pytest.param(ImageLimits(kept=25), "manifests/c: the layer keeps more than 25 bytes", id="all files"),
    ],
)
def test_each_limit_names_the_entry_that_crosses_it(limits: ImageLimits, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        files(tar({f"manifests/{name}": b"x" * 10 for name in "abc"}), limits=limits)


def test_many_layers_together_stay_within_the_limit() -> None:
    layers = [tar({f"manifests/{at}": b"x" * 10}) for at in range(5)]
    with pytest.raises(UserError, match="keeps more than 25 bytes"):
        files(*layers, limits=ImageLimits(kept=25))


def test_a_sparse_file_does_not_unfold() -> None:
    info = tarfile.TarInfo("manifests/sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    info.pax_headers["GNU.sparse.name"] = "manifests/sparse"
    info.size = 512
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"1\n0\n512\n".ljust(512, b"\0")))
    with pytest.raises(UserError, match="manifests/sparse: is no plain file"):
        files(target.getvalue())


def test_a_chain_of_long_headers_is_one_sentence() -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 0
    with pytest.raises(UserError, match="layer 0: is broken"):
        files(header.tobuf(format=tarfile.GNU_FORMAT) * 5000)

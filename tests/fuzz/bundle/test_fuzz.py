"""Whatever stands in a bundle, an archive or a document: a result, or one sentence; never a traceback."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bundle.made import RULES, crd, deployment, files, webhook
from tests.unit.bundle.packed import tar

from pointsman.bundle.chart.chart import make_chart
from pointsman.bundle.compare import compare
from pointsman.bundle.load import load_bundle
from pointsman.bundle.reader import read_documents
from pointsman.bundle.render.certificates import CertManager
from pointsman.bundle.render.config import read_config
from pointsman.bundle.render.objects import InstallOptions, render
from pointsman.bundle.sources.layers import Layer, unpack
from pointsman.bundle.sources.limits import ImageLimits
from pointsman.bundle.summary import lines, summarise
from pointsman.bundle.writer import write_documents
from pointsman.core.errors import PointsmanError

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "100"))
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "{{",
    [],
    [1],
    ["x"],
    [None],
    [[]],
    [{}],
    {},
    {"x": 1},
    {"name": 1},
    {"name": None},
]
CONTAINER = {
    "name": "c",
    "image": "i",
    "args": ["--namespace=x"],
    "env": [{"name": "NAMESPACE", "value": "x"}],
    "envFrom": [{"prefix": "x"}],
    "volumeMounts": [{"name": "v", "mountPath": "/tmp/k8s-webhook-server/serving-certs"}],
}
POD: dict[str, Any] = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "k"}],
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {"a": 1}},
    "imagePullSecrets": [{"name": "s"}],
}
RULE = {"apiGroups": ["g"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["r"]}
WHOLE = files(
    modes=["AllNamespaces"],
    deployments=[deployment(**POD)],
    webhooks=[
        webhook(rules=[RULE], objectSelector={"matchLabels": {"a": "b"}}),
        webhook("ConversionWebhook", name="convert.example.com", conversionCRDs=["widgets.example.com"]),
    ],
    crds=[crd()],
    permissions=[{"serviceAccountName": "s", "rules": RULES}],
    others=[
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "imagePullSecrets": [{"name": "x"}]},
        {"apiVersion": "r/v1", "kind": "RoleBinding", "metadata": {"name": "b"}, "subjects": [{"namespace": "x"}]},
    ],
    annotations={"operatorframework.io/suggested-namespace": "x", "olm.properties": "[]"},
    spec={"relatedImages": [{"name": "n", "image": "i"}], "minKubeVersion": "1.30.0", "skips": ["a"]},
)
DOCUMENTS = {path: json.loads(text) for path, text in WHOLE.items()}
CONFIG = read_config(
    {
        "env": [{"name": "A", "value": "b"}],
        "envFrom": [{"prefix": "y"}],
        "volumes": [{"name": "w"}],
        "volumeMounts": [{"name": "w", "mountPath": "/w"}],
        "tolerations": [{"key": "l"}],
        "affinity": {"nodeAffinity": {}},
        "annotations": {"a": "b"},
    },
    name="config",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return the value with something new at a path, if an earlier change has left that path."""
    if not path:
        return new
    held = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
    if path[0] not in held:
        return value
    held = held | {path[0]: replaced(held[path[0]], path[1:], new)}
    return held if isinstance(value, dict) else list(held.values())


ALL_PLACES = [(name, path) for name, document in DOCUMENTS.items() for path in places(document)]


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(st.sampled_from(ALL_PLACES), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_fuzz_a_wrong_value_anywhere_is_a_result_or_one_sentence(changes: list[tuple[Any, Any]]) -> None:
    documents = dict(DOCUMENTS)
    for (name, path), new in changes:
        documents[name] = replaced(documents[name], path, new)
    with contextlib.suppress(PointsmanError):
        found = load_bundle({path: json.dumps(each).encode() for path, each in documents.items()}, name="fuzzed")
        list(lines(summarise(found)))
        objects = render(found, InstallOptions(namespace="ns", certificates=CertManager(), config=CONFIG))
        assert read_documents(write_documents(objects).encode(), name="again") == list(objects)
        assert not compare(objects, objects)
        make_chart(found, InstallOptions(namespace="ns"), own_certificates=True)


def test_every_place_takes_every_kind_of_junk_of_another_type() -> None:
    """The fuzz test draws at random; this goes through all places with four kinds of junk."""
    for name, path in ALL_PLACES:
        for new in (5, "x", ["x"], {"x": 1}):
            documents = DOCUMENTS | {name: replaced(DOCUMENTS[name], path, new)}
            with contextlib.suppress(PointsmanError):
                found = load_bundle({each: json.dumps(text).encode() for each, text in documents.items()}, name="x")
                render(found, InstallOptions(namespace="ns", certificates=CertManager(), config=CONFIG))
                make_chart(found, InstallOptions(namespace="ns"))


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_fuzz_any_bytes_as_a_document(text: bytes) -> None:
    with contextlib.suppress(PointsmanError):
        documents = read_documents(text, name="fuzzed")
        assert read_documents(write_documents(documents).encode(), name="again") == [
            d for d in documents if d is not None
        ]


ARCHIVE = bytearray(tar({"manifests/a.yaml": b"a: 1\n" * 200, "metadata/.wh.x": b"", "usr/bin/x": b"x" * 2000}))


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.tuples(st.integers(0, len(ARCHIVE) - 1), st.integers(0, 255)), min_size=1, max_size=12),
    st.integers(0, len(ARCHIVE)),
)
def test_fuzz_any_bytes_in_an_archive(changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(ARCHIVE)
    for at, byte in changes:
        content[at % 512 if byte % 2 else at] = byte
    with contextlib.suppress(PointsmanError):
        unpack(
            [Layer("fuzzed", io.BytesIO(bytes(content[: length or None])))],
            wanted=("manifests/", "metadata/"),
            limits=ImageLimits(unpacked=100_000),
        )

"""All bundles at hand: each renders or is refused by a rule with a name, and nothing of a definition is lost.

The comparison is with PyYAML's own loader on the bundle's file, and again on what we write: two parsers that share no
code with ours but libyaml.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.bundle.material import bundles_below, go_folders, named_folder, read_files
from tests.unit.bundle.test_writer import same

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Refused
from pointsman.bundle.render.certificates import CertManager
from pointsman.bundle.render.objects import InstallOptions, render
from pointsman.bundle.writer import write_documents


class _Loader(yaml.CSafeLoader):
    """PyYAML's loader, but for dates, which Kubernetes takes as text."""


_Loader.yaml_implicit_resolvers = {
    char: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
    for char, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def plain(text: bytes | str) -> list[Any]:
    return [document for document in yaml.load_all(text, Loader=_Loader) if document]


def paths(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every path and leaf, empty containers included."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from paths(each, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield from paths(each, f"{path}[{at}]")
    else:
        yield path, value


def modes_of(folder: Path, files: dict[str, bytes]) -> list[str] | None:
    modes = load_bundle(files, name=str(folder)).csv.modes
    if modes & {"AllNamespaces", "OwnNamespace"}:
        return None
    return ["x"] if "SingleNamespace" in modes else ["x", "z"]


def try_all(folders: Iterable[Path]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for folder in folders:
        files = read_files(folder)
        try:
            options = InstallOptions(namespace="ns", targets=modes_of(folder, files), certificates=CertManager())
            objects = render(load_bundle(files, name=str(folder)), options)
        except Refused as error:
            outcomes.update({f"refused: {finding.rule}" for finding in error.findings})
            continue
        outcomes["rendered"] += 1
        assert_nothing_lost(files, list(objects))
    return outcomes


def assert_nothing_lost(files: dict[str, bytes], objects: list[dict[str, Any]]) -> None:
    written = plain(write_documents(objects))
    assert same(written, objects)
    made = {each["metadata"]["name"]: each for each in written if each["kind"] == "CustomResourceDefinition"}
    for path, text in files.items():
        if path.endswith((".yaml", ".yml", ".json")):
            for document in plain(text):
                if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                    kept = dict(paths(made[document["metadata"]["name"]]))
                    for where, value in paths(document):
                        if not where.startswith(".spec.conversion"):
                            assert where in kept, f"{path}: {where} is lost"
                            assert same(kept[where], value), f"{path}: {where} was {value!r}, is {kept[where]!r}"


def test_the_real_bundles_render_and_lose_nothing() -> None:
    folder = named_folder()
    if folder is None:
        pytest.skip("NO REAL BUNDLES TESTED: set POINTSMAN_BUNDLES to a folder of bundles, or POINTSMAN_DATA")
    outcomes = try_all(bundles_below(folder))
    assert outcomes == {"rendered": outcomes["rendered"]}
    assert outcomes["rendered"] >= 3


@pytest.mark.timeout(300)
def test_the_bundles_of_the_go_modules_render_or_are_refused_by_a_rule() -> None:
    folders = go_folders()
    if not folders:
        pytest.skip("150 BUNDLES NOT TESTED: they come with Go modules, and there is no Go (or no module proxy)")
    outcomes = try_all(folders)
    assert outcomes["rendered"] >= 60
    assert sum(outcomes.values()) >= 150, "every folder counts, once rendered or at least once refused"

"""A bundle and an overlay become one chart, the same every time; where they want the same thing it is said."""

import json
import os
from pathlib import Path

import pytest
import yaml
from tests.unit.bundle.material import real_bundle
from tests.unit.platform.made import bundle_folder, component, read

from pointsman.bundle.sources.source import Registries, fetch_bundle
from pointsman.core.errors import UserError
from pointsman.platform.charts import complete_chart
from pointsman.platform.folder import read_folder
from pointsman.platform.spec import BundlePin

ROOT = Path(__file__).parents[3]
PIN = BundlePin("registry.example.com/team/thing-bundle:v1.2.3", "1.2.3", "sha256:" + "a" * 64, "sha256:" + "b" * 64)


def chart(root: Path) -> dict[str, str]:
    fetched = fetch_bundle(str(bundle_folder(root / "bundles")), registries=Registries())
    return complete_chart(fetched.bundle(), read(root), pin=PIN).files


def test_definitions_and_overlay_stand_beside_the_templates(tmp_path: Path) -> None:
    files = chart(tmp_path)
    assert "manifests-crds/widgets.example.com.yaml" in files
    assert "manifests-presync/account.yaml" in files
    assert {"templates/extra.yaml", "templates/deployment-manager.yaml"} <= files.keys()
    assert not [path for path in files if path.startswith("crds/")]
    assert "manifests-*/" in files[".helmignore"].splitlines()
    values = yaml.safe_load(files["values.yaml"])
    assert values["extra"] == {"on": True}
    assert values["imagePullSecrets"] == []
    schema = json.loads(files["values.schema.json"])
    assert {"extra", "images"} <= schema["properties"].keys()
    assert yaml.safe_load(files["Chart.yaml"])["annotations"]["platform.llm-d.io/digest"] == PIN.digest


def test_the_same_in_gives_the_same_out(tmp_path: Path) -> None:
    assert chart(tmp_path / "one") == chart(tmp_path / "two")


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        pytest.param("templates/deployment-manager.yaml", "{}", "the bundle makes a file of that name", id="file"),
        pytest.param("overlay/values.yaml", "images: {}", "overlay/values.yaml: images", id="value"),
        pytest.param("overlay/values.schema.json", "{", "not valid JSON", id="schema"),
        pytest.param("component.yaml", "{namespace: a, exclude: ['((']}", "component.yaml: exclude '", id="filter"),
        pytest.param("component.yaml", "{namespace: A_b}", "component.yaml: namespace: 'A_b' is no", id="namespace"),
        pytest.param("overlay/values.yaml", "[1]", "must hold one mapping", id="no mapping"),
    ],
)
def test_what_both_want_is_refused(tmp_path: Path, path: str, text: str, told: str) -> None:
    folder = component(tmp_path)
    (folder / path).write_text(text)
    fetched = fetch_bundle(str(bundle_folder(tmp_path / "bundles")), registries=Registries())
    with pytest.raises(UserError, match=told):
        complete_chart(fetched.bundle(), read_folder(folder), pin=PIN)


@pytest.mark.parametrize("name", ["cert-manager-operator", "sail-operator", "lws-operator"])
def test_the_folders_in_this_clone_fit_their_bundles(name: str) -> None:
    bundle = real_bundle(name)
    if bundle is None:
        pytest.skip("NO REAL BUNDLE: set POINTSMAN_BUNDLES or POINTSMAN_DATA")
    folder = read_folder(ROOT / "platform" / name)
    assert folder.pin is not None
    assert bundle.version == folder.pin.version
    made = complete_chart(bundle, folder, pin=folder.pin)
    assert len(made.made) > 10
    assert not [path for path in made.files if "console" in path.lower()]
    kinds = {each["kind"] for part in ("manifests-presync/", "manifests-postsync/") for each in folder.objects(part)}
    assert "ServiceAccount" in kinds


def test_the_scripts_that_move_a_bundle_are_one_and_the_same() -> None:
    folders = [path.parent for path in (ROOT / "platform").glob("*/bundle.yaml")]
    scripts = [folder / "scripts" / "update-bundle.sh" for folder in folders]
    assert len(scripts) == 3
    assert len({script.read_bytes() for script in scripts}) == 1, "edit all three: each goes with its own chart"
    for script in scripts:
        assert not script.is_symlink(), "a chart that is copied elsewhere takes it along"
        assert os.access(script, os.X_OK)

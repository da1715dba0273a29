"""Bundles are found in order and must be what is pinned; charts are written whole or not at all, and overlays stay."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bundle.made import crd
from tests.unit.platform.made import bundle_folder, component, image_of, read

from pointsman.bundle.sources.source import Fetched, Registries, fetch_bundle
from pointsman.core.errors import Unavailable, UserError
from pointsman.platform import store
from pointsman.platform.charts import complete_chart
from pointsman.platform.folder import ComponentFolder, read_folder
from pointsman.platform.render import Move, move_bundle, render_charts
from pointsman.platform.store import Sources, find_bundle, mend, write_chart_folder

DIGEST = "sha256:" + "c" * 64


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def rendered(root: Path) -> tuple[Path, Sources]:
    """Return a chart written from a component, and where its bundle is."""
    bundle_folder(root / "bundles", version="1.2.3")
    sources = Sources(bundles=root / "bundles")
    render_charts(read(root / "source"), sources, source="", out=root / "out" / "thing")
    return root / "out" / "thing", sources


def test_a_folder_of_bundles_is_looked_in_by_package_and_version(tmp_path: Path) -> None:
    folder = read(tmp_path)
    for version in ("1.2.3", "2.0.0"):
        bundle_folder(tmp_path / "bundles", version=version)
    bundle_folder(tmp_path / "bundles", package="other", name="other")
    found = find_bundle(folder, Sources(bundles=tmp_path / "bundles"))
    assert found.pin.version == "1.2.3"
    assert found.pin.content.startswith("sha256:")


def test_a_version_that_the_folder_has_not_is_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_folder(tmp_path / "bundles", version="1.0.0")

    def pull(source: str, *, registries: Registries, catalog: object = None) -> Fetched:
        if not Path(source).exists():
            raise Unavailable(f"{source}: the registry cannot be reached")
        return fetch_bundle(source, registries=registries)

    monkeypatch.setattr(store, "fetch_bundle", pull)
    with pytest.raises(Unavailable, match=r"thing-bundle:v1\.2\.3: the registry .*bundles has only 1\.0\.0"):
        find_bundle(read(tmp_path), Sources(bundles=tmp_path / "bundles"))


def test_who_only_looks_does_not_ask_a_registry(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not pulled before: set POINTSMAN_BUNDLES"):
        find_bundle(read(tmp_path), Sources(offline=True))


def test_another_version_or_other_files_than_pinned_are_refused(tmp_path: Path) -> None:
    there = str(bundle_folder(tmp_path, version="2.0.0"))
    with pytest.raises(UserError, match=r"is version 2\.0\.0, and .*says 1\.2\.3: move to it with .*update-bundle"):
        find_bundle(read(tmp_path / "a"), Sources(), source=there)
    same = str(bundle_folder(tmp_path, version="1.2.3"))
    pin = {"image": "x.example.com/y:1", "version": "1.2.3", "content": DIGEST}
    with pytest.raises(UserError, match="its files are sha256:"):
        find_bundle(read(tmp_path / "b", pin=pin), Sources(), source=same)


def test_what_was_pulled_is_kept_by_its_digest_and_not_believed_once_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[str] = []
    local = bundle_folder(tmp_path / "remote")

    def pull(source: str, *, registries: Registries, catalog: object = None) -> Fetched:
        if Path(source).exists():
            return fetch_bundle(source, registries=registries)
        pulled.append(source)
        return replace(fetch_bundle(str(local), registries=registries), name=source, image=f"x.example.com/y@{DIGEST}")

    monkeypatch.setattr(store, "fetch_bundle", pull)
    pin = {"image": "x.example.com/y:1", "version": "1.2.3", "digest": DIGEST}
    folder, sources = read(tmp_path, pin=pin), Sources(cache=tmp_path / "cache")
    first = find_bundle(folder, sources)
    assert find_bundle(folder, sources).fetched.files == first.fetched.files
    assert pulled == [f"x.example.com/y@{DIGEST}"]
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    kept = next((tmp_path / "cache").glob("sha256-*/bundle/manifests/csv.yaml"))
    kept.write_text(kept.read_text().replace("Basic", "Evil"))
    find_bundle(folder, sources)
    assert len(pulled) == 2


def test_rendering_again_keeps_what_was_added_and_what_was_edited(tmp_path: Path) -> None:
    out, sources = rendered(tmp_path)
    first = tree(out)
    (out / "templates" / "mine.yaml").write_text("# mine\n")
    (out / "overlay" / "values.yaml").write_text("extra: {on: false}\n")
    told = render_charts(read_folder(tmp_path / "source" / "thing"), sources, source="", out=out)
    assert "kept as you edited them: overlay/values.yaml" in told
    after = tree(out)
    assert after.pop("templates/mine.yaml") == b"# mine\n"
    assert after.pop("overlay/values.yaml") == b"extra: {on: false}\n"
    first.pop("overlay/values.yaml")
    assert after == first


def test_a_folder_of_others_is_not_written_to(tmp_path: Path) -> None:
    out = tmp_path / "thing"
    out.mkdir()
    (out / "letter.txt").write_text("mine")
    bundle_folder(tmp_path / "bundles")
    with pytest.raises(UserError, match="is not empty, and no chart of this command"):
        render_charts(read(tmp_path / "source"), Sources(bundles=tmp_path / "bundles"), source="", out=out)
    assert tree(out) == {"letter.txt": b"mine"}


class Cut(BaseException):
    """The process ends here."""


class Clock:
    """Counts what is done to the disk, and ends the process at one of these moments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moments, self.end = 0, 0
        for name in ("write_text", "rename", "mkdir", "chmod"):
            monkeypatch.setattr(Path, name, self._counting(getattr(Path, name)))

    def _counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Path, *args: Any, **options: Any) -> Any:
            self.moments += 1
            if self.moments == self.end:
                raise Cut
            return real(path, *args, **options)

        return counted


def test_a_cut_at_any_moment_leaves_one_whole_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, sources = rendered(tmp_path)
    before = tree(out)
    bundle_folder(tmp_path / "new", version="1.3.0", deployments=[image_of("1.3.0")])
    move = Move("1.3.0", source=str(tmp_path / "new" / "thing-1.3.0"))
    disk = Clock(monkeypatch)

    def attempt(folder: Path, *, end: int) -> dict[str, bytes]:
        prepared = move_bundle(read_folder(folder), sources, move)
        disk.moments, disk.end = 0, end
        try:
            prepared.write()
        except Cut:
            pass
        finally:
            disk.end = 0
        mend(folder)
        return tree(folder)

    folders = [tmp_path / str(number) / "thing" for number in range(200)]
    shutil.copytree(out, folders[0])
    after = attempt(folders[0], end=0)
    total = disk.moments
    assert b"1.3.0" in after["Chart.yaml"]
    cuts = sorted({*range(1, total, total // 20), *range(total - 4, total + 1)})
    seen = []
    for number, cut in enumerate(cuts, 1):
        shutil.copytree(out, folders[number])
        found = attempt(folders[number], end=cut)
        assert found in (before, after), f"half a chart after moment {cut} of {total}"
        seen.append(found == after)
        assert attempt(folders[number], end=0) == after
        assert [path.name for path in folders[number].parent.iterdir()] == ["thing"]
    assert not seen[0]


def moved(root: Path, version: str, **parts: Any) -> ComponentFolder:
    bundle_folder(root / "new", version=version, **parts)
    return read(root / "source")


def test_a_move_tells_versions_images_definitions_and_rights(tmp_path: Path) -> None:
    bundle_folder(tmp_path / "bundles", deployments=[image_of("1")])
    rules = [{"apiGroups": ["", "apps"], "resources": ["secrets"], "verbs": ["get", "*"]}]
    narrower = crd()
    narrower["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = {}
    folder = moved(
        tmp_path,
        "1.3.0",
        deployments=[image_of("2")],
        crds=[narrower, crd("gadgets.example.com", names={"kind": "Gadget", "plural": "gadgets"})],
        cluster_permissions=[{"serviceAccountName": "manager", "rules": rules}],
    )
    before = tree(folder.path)
    sources = Sources(bundles=tmp_path / "bundles")
    prepared = move_bundle(folder, sources, Move("v1.3.0", source=str(tmp_path / "new" / "thing-1.3.0")))
    assert prepared.update.breaking
    assert tree(folder.path) == before
    lines = "\n".join(prepared.update.lines)
    assert "version      1.2.3 → 1.3.0" in lines
    assert "image ~      main: quay.io/example/manager:v1 → quay.io/example/manager:v2" in lines
    assert "definition + gadgets.example.com" in lines
    assert "definition ~ widgets.example.com: BREAKING" in lines
    assert "right +      * secrets.apps in all namespaces" in lines
    assert "right -      get configmaps in all namespaces" in lines
    prepared.write()
    pin = read_folder(folder.path).pin
    assert pin is not None
    assert (pin.version, pin.image) == ("1.3.0", "registry.example.com/team/thing-bundle:v1.3.0")
    assert pin.content.startswith("sha256:")
    changed = tree(folder.path)
    assert {path for path in changed if changed[path] != before.get(path)} == {"bundle.yaml"}


def test_a_move_to_what_cannot_be_rendered_changes_nothing(tmp_path: Path) -> None:
    bundle_folder(tmp_path / "bundles")
    folder = moved(tmp_path, "1.3.0", owned=["missing.example.com"])
    before = tree(folder.path)
    sources = Sources(bundles=tmp_path / "bundles")
    with pytest.raises(UserError, match=r"missing\.example\.com"):
        move_bundle(folder, sources, Move("1.3.0", source=str(tmp_path / "new" / "thing-1.3.0")))
    with pytest.raises(UserError, match=r"is version 1\.2\.3, not 9"):
        move_bundle(folder, sources, Move("9", source=str(tmp_path / "bundles" / "thing-1.2.3")))
    assert tree(folder.path) == before


def test_a_bundle_of_another_operator_is_refused(tmp_path: Path) -> None:
    other = bundle_folder(tmp_path / "new", version="1.3.0", package="other", name="other")
    folder = read(tmp_path / "source")
    with pytest.raises(UserError, match="other: is a bundle of other, and thing is made of thing"):
        move_bundle(folder, Sources(), Move("1.3.0", source=str(other)))
    with pytest.raises(UserError, match="is a bundle of other"):
        find_bundle(folder, Sources(), source=str(other))


def test_a_short_version_is_found_in_a_folder_of_bundles(tmp_path: Path) -> None:
    bundle_folder(tmp_path / "bundles", version="1.3.0")
    prepared = move_bundle(read(tmp_path / "source"), Sources(bundles=tmp_path / "bundles"), Move("v1.3"))
    assert "version      1.3.0" in prepared.update.lines[0]


def test_a_chart_kept_in_git_is_moved_whole_and_its_overlay_stays(tmp_path: Path) -> None:
    out, sources = rendered(tmp_path)
    (out / "templates" / "mine.yaml").write_text("# mine\n")
    (out / "scripts" / "mine").write_text("#!/bin/sh\n")
    (out / "scripts" / "mine").chmod(0o755)
    bundle_folder(tmp_path / "new", version="1.3.0", crds=[])
    move_bundle(read_folder(out), sources, Move("1.3.0", source=str(tmp_path / "new" / "thing-1.3.0"))).write()
    after = tree(out)
    assert after["templates/mine.yaml"] == b"# mine\n"
    assert "manifests-crds/widgets.example.com.yaml" not in after
    assert "manifests-presync/account.yaml" in after
    assert b"1.3.0" in after["bundle.yaml"]
    assert json.loads(after[".bundle.json"])["version"] == "1.3.0"
    assert os.access(out / "scripts" / "update-bundle.sh", os.X_OK)
    assert os.access(out / "scripts" / "mine", os.X_OK), "an added program stays one"


def test_a_component_folder_with_odd_content_is_refused(tmp_path: Path) -> None:
    folder = component(tmp_path)
    (folder / "manifests-presync" / "account.yaml").write_text("[]")
    with pytest.raises(UserError, match="it has no kind"):
        read_folder(folder).objects("manifests-presync/")
    (folder / "manifests-presync" / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="it is no text"):
        read_folder(folder)
    with pytest.raises(UserError, match="is no component"):
        read_folder(tmp_path)


def test_a_chart_is_written_in_one_step_over_a_leftover(tmp_path: Path) -> None:
    out, sources = rendered(tmp_path)
    before = tree(out)
    out.rename(out.with_name(".thing.old"))
    (out.with_name(".thing.new")).mkdir()
    fetched = find_bundle(read_folder(tmp_path / "source" / "thing"), sources)
    write_chart_folder(
        complete_chart(fetched.fetched.bundle(), read_folder(tmp_path / "source" / "thing"), pin=fetched.pin), out
    )
    assert tree(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["thing"]

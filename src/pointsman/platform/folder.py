"""The folder of one component: what people wrote in it, and which bundle belongs to it.

Owns the layout of requirement and chart alike: `component.yaml`, `bundle.yaml`, `manifests-crds/`,
`manifests-presync/`, `manifests-postsync/`, `templates/`, `overlay/`, `scripts/`, `helmfile.yaml.gotmpl`. A folder
that `platform render` wrote has the same, with the extracted files beside; its list says which those are, and they are
never taken for an overlay.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.bundle.chart.chart import LIST
from pointsman.bundle.reader import read_documents
from pointsman.core.errors import UserError
from pointsman.core.files import read_regular
from pointsman.platform.spec import MOST_FILE, BundlePin, ComponentSpec, check_component, read_mapping, typed

CRDS, PRESYNC, POSTSYNC = "manifests-crds/", "manifests-presync/", "manifests-postsync/"
PIN, SPEC = "bundle.yaml", "component.yaml"
_MOST_FILES = 2000


@dataclass(frozen=True)
class ComponentFolder:
    """One component as it stands on disk."""

    name: str
    path: Path
    spec: ComponentSpec
    pin: BundlePin | None
    files: Mapping[str, str] = field(repr=False)
    """What people wrote, by path."""
    extracted: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was made of a bundle and written beside it, if anything was."""

    @property
    def release(self) -> str:
        return self.spec.release or self.name

    def objects(self, part: str) -> list[dict[str, Any]]:
        """Return the objects in one of the folders of manifests, in the order of their files."""
        return objects_in(self.files, part)


def objects_in(files: Mapping[str, str], part: str) -> list[dict[str, Any]]:
    """Return the objects in the files below a folder; raises UserError for what is none."""
    found: list[dict[str, Any]] = []
    for path in sorted(path for path in files if path.startswith(part) and path.endswith((".yaml", ".yml"))):
        for document in read_documents(files[path].encode(), name=path):
            if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
                raise UserError(f"{path}: holds what is no Kubernetes object: it has no kind")
            found.append(document)
    return found


def read_folder(path: Path) -> ComponentFolder:
    """Return the component in a folder; raises UserError when it has no `component.yaml`, or what it has is wrong."""
    path = path.absolute()
    if not (path / SPEC).is_file():
        raise UserError(f"{path}: is no component: there is no {SPEC} in it")
    spec = typed(ComponentSpec, read_mapping(path / SPEC), name=str(path / SPEC))
    check_component(spec, name=str(path / SPEC))
    pin = typed(BundlePin, read_mapping(path / PIN), name=str(path / PIN)) if (path / PIN).is_file() else None
    listed = _extracted(path)
    texts = dict(_texts(path))
    return ComponentFolder(
        name=path.name,
        path=path,
        spec=spec,
        pin=pin,
        files={name: text for name, text in texts.items() if name not in listed and name != LIST},
        extracted={name: text for name, text in texts.items() if name in listed},
    )


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for number, path in enumerate(sorted(root.rglob("*"))):
        if number > _MOST_FILES:
            raise UserError(f"{root}: has more than {_MOST_FILES} files: it is no component's folder")
        if path.is_dir() and not path.is_symlink():
            continue
        try:
            yield path.relative_to(root).as_posix(), read_regular(path, most=MOST_FILE).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def _extracted(root: Path) -> set[str]:
    try:
        found = json.loads((root / LIST).read_text())
        return {str(each) for each in found["files"]}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(f"{root / LIST}: cannot be read: delete it and render the chart again") from None

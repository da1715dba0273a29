"""A platform's file, a component's folder and its bundle → what is wanted of the cluster. Pure but for what is handed
in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pointsman.bundle.chart.templating import images_of
from pointsman.bundle.model import Bundle, Object
from pointsman.crds import our_definitions
from pointsman.crds.marks import stamped
from pointsman.platform.charts import Chart, complete_chart
from pointsman.platform.folder import CRDS, POSTSYNC, PRESYNC, ComponentFolder, objects_in
from pointsman.platform.providers import OTHER, Provider, localised
from pointsman.platform.spec import BundlePin, ComponentChoice, Platform
from pointsman.platform.steps import Wanted


@dataclass(frozen=True)
class Material:
    """Everything that one component is made of, once it has been read."""

    choice: ComponentChoice
    folder: ComponentFolder
    bundle: Bundle | None = None
    pin: BundlePin | None = None
    definitions: Sequence[Object] = field(default=(), repr=False)
    """What the component's own sources of definitions hold."""

    @property
    def images(self) -> list[str]:
        return list(images_of(self.bundle).values()) if self.bundle else []


def wanted_of(material: Material, platform: Platform, *, provider: Provider = OTHER, docker_config: str = "") -> Wanted:
    """Return what is wanted of the cluster for one component."""
    folder, spec = material.folder, material.folder.spec
    chart = _chart(material)
    own = objects_in(chart.made, CRDS) if chart else []
    shared = [*objects_in(folder.files, CRDS), *material.definitions]
    if spec.inference_definitions:
        shared += [stamped(each.document) for each in our_definitions()]
    secret = platform.pull_secret.name if docker_config else ""
    return Wanted(
        name=folder.name,
        namespace=spec.namespace,
        release=folder.release,
        version=chart.version if chart else spec.chart_version,
        chart=_for_helm(chart) if chart else {},
        remote_chart=_place(folder, spec.chart),
        remote_version=spec.chart_version,
        values=_values(material, platform, secret=secret) if chart else material.choice.values,
        operand_namespaces=spec.operand_namespaces,
        own_definitions=own,
        shared_definitions=shared,
        groups=[each.group for each in spec.definitions],
        presync=[localised(each, provider) for each in folder.objects(PRESYNC)],
        postsync=[localised(each, provider) for each in folder.objects(POSTSYNC)],
        pull_secret=secret,
        docker_config=docker_config,
        deployments=[each.name for each in material.bundle.csv.deployments] if material.bundle else [],
        webhook_loop=spec.webhook_loop,
    )


def _place(folder: ComponentFolder, chart: str) -> str:
    """Return where somebody's chart is: an address, or a folder beside the component's files."""
    return chart if not chart or "://" in chart else str(folder.path / chart)


def _chart(material: Material) -> Chart | None:
    if material.bundle is None or material.pin is None:
        return None
    return complete_chart(material.bundle, material.folder, pin=material.pin)


def _for_helm(chart: Chart) -> dict[str, str]:
    """Return the files that Helm reads: the chart's own and the templates that people wrote."""
    return {
        path: text
        for path, text in chart.files.items()
        if path.startswith("templates/") or ("/" not in path and not path.endswith(".gotmpl"))
    }


def _values(material: Material, platform: Platform, *, secret: str) -> dict[str, object]:
    values: dict[str, object] = {}
    if secret:
        values["imagePullSecrets"] = [{"name": secret}]
    if platform.image_mirror:
        values["imageMirror"] = platform.image_mirror
    return {**values, **material.choice.values}

"""`pointsman bundle`: OLM bundles as manifests or Helm charts, compared, looked into; olm-extractor's flags work too.

A run is short and makes no cycles: the collector of cyclic garbage would look a third of the time at objects that all
stay, so it is switched off while a command runs.
"""

import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, ParamSpec

from cyclopts import App, Parameter
from cyclopts.config import Env

from pointsman.bundle.model import Bundle, Object
from pointsman.bundle.reader import read_documents
from pointsman.bundle.render.certificates import Certificates, CertManager, OwnCertificates, ServiceCa
from pointsman.bundle.render.config import DeploymentConfig, read_config
from pointsman.bundle.render.objects import InstallOptions, install_order, namespace_object, render
from pointsman.bundle.sources.source import FromCatalog, Registries, read_bundle
from pointsman.bundle.writer import write_documents
from pointsman.core.errors import PointsmanError, UserError

if TYPE_CHECKING:
    from pointsman.bundle.krm import Extractor

P = ParamSpec("P")
Provider = Literal["cert-manager", "service-ca", "self-signed", "none"]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DIFFERENT = 1


def uncollected(command: Callable[P, int]) -> Callable[P, int]:
    """Let a command run without the collector of cyclic garbage."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        gc.disable()
        try:
            return command(*args, **kwargs)
        finally:
            gc.enable()

    return run


def _one_expression(_: object, text: str, *, delimiter: str | None = None) -> list[str]:  # noqa: ARG001 - cyclopts' way
    """Return what the environment holds as one expression: it has blanks in it and is no list of words."""
    return [text]


Expressions = Annotated[list[str], Parameter(env_var_split=_one_expression)]

Side = Annotated[str, Parameter(allow_leading_hyphen=True)]  # `-` is stdin

bundle = App(
    name="bundle",
    help="Turn OLM bundles into manifests and Helm charts, for clusters without OLM.",
    # olm-extractor's: BUNDLE_EXTRACT_NAMESPACE is --namespace of every command.
    config=[Env("BUNDLE_EXTRACT_", command=False)],
)


@Parameter(name="*")
@dataclass(frozen=True)
class From:
    """Where a bundle comes from."""

    catalog: str = ""
    "File-based catalog, folder or image; SOURCE is then a package or package:version."
    channel: str = ""
    "Channel of the catalog; else the package's default."
    installed: str = ""
    "Take the newest bundle of the catalog that this installed version can go to."
    registry_insecure: bool = False
    "Allow registries without TLS or with untrusted certificates."
    registry_username: str = ""
    "User for the registry; else what podman and docker have on file."
    registry_password: str = ""
    "Password for the registry."
    registry_ca: Path | None = None
    "CA certificates of the registry (PEM)."

    def read(self, source: str) -> Bundle:
        """Return the bundle that a source names."""
        where = FromCatalog(self.catalog, self.channel, self.installed)
        return read_bundle(source, registries=self._registries(), catalog=where)

    def digests(self, found: Bundle) -> dict[str, str]:
        """Return the images that have only a tag, with the digest that it has now."""
        from pointsman.bundle.chart.templating import images_of
        from pointsman.bundle.sources.source import resolve_digest

        loose = [image for image in images_of(found).values() if "@" not in image]
        return {image: resolve_digest(image, registries=self._registries()) for image in loose}

    def _registries(self) -> Registries:
        return Registries(
            insecure=self.registry_insecure,
            username=self.registry_username,
            password=self.registry_password,
            authority=self.registry_ca,
            environment=os.environ,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class Into:
    """How a bundle is installed."""

    watch_namespace: list[str] | None = None
    'Namespace that the operator watches; repeat it, or "" for all. Else what the bundle prefers.'
    certificates: Provider = "cert-manager"
    "Who issues the certificates of webhooks."
    cert_manager_enabled: bool = True
    "olm-extractor's way to say --certificates none."
    cert_manager_issuer_name: str = ""
    "Issuer of cert-manager that is there already; else a self-signed one is made."
    cert_manager_issuer_kind: str = ""
    "Issuer or ClusterIssuer."
    config: Path | None = None
    "File with changes to the operator's Pods, as in a Subscription's spec.config."

    def options(self, namespace: str) -> InstallOptions:
        """Return what the renderer takes."""
        for each in self.watch_namespace or ():
            if each and not _LABEL.fullmatch(each):
                raise UserError(f"--watch-namespace {each!r} is no namespace: name one, and repeat the flag for more")
        return InstallOptions(namespace, self.watch_namespace, self._certificates(), self._config())

    @property
    def own_certificates(self) -> bool:
        """Say whether certificates are ours to make."""
        return self.certificates == "self-signed" and self.cert_manager_enabled

    def _certificates(self) -> Certificates | None:
        if not self.cert_manager_enabled or self.certificates == "none":
            return None
        makers: dict[str, Callable[[], Certificates]] = {
            "cert-manager": lambda: CertManager(self.cert_manager_issuer_name, self.cert_manager_issuer_kind),
            "service-ca": ServiceCa,
            "self-signed": _own_certificates,
        }
        return makers[self.certificates]()

    def _config(self) -> DeploymentConfig | None:
        if self.config is None:
            return None
        return read_config(_only(_read_file(self.config), name=str(self.config)), name=str(self.config))


@Parameter(name="*")
@dataclass(frozen=True)
class Filters:
    """Which objects are wanted."""

    include: Expressions | None = None
    "Keep only objects for which this jq expression is true; repeat it for more."
    exclude: Expressions | None = None
    "Leave out objects for which this jq expression is true; repeat it for more."

    def apply(self, objects: list[Object]) -> list[Object]:
        """Return the objects that are wanted."""
        from pointsman.bundle.filters import wanted

        return wanted(objects, include=self.include or (), exclude=self.exclude or ())


@Parameter(name="*")
@dataclass(frozen=True)
class BundleFlags:
    """What is wanted of a bundle: the flags of every command that renders one."""

    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = ""
    "Namespace of the operator; else the one that the bundle suggests. A chart needs it only to tell its own apart."
    filters: Filters = field(default_factory=Filters)
    into: Into = field(default_factory=Into)
    origin: From = field(default_factory=From)

    def objects(self, source: str) -> list[Object]:
        """Return the objects that install the bundle, in the order in which they can be applied."""
        found = self.origin.read(source)
        where = self.namespace or found.suggested_namespace
        if not where:
            raise UserError("--namespace is missing, and the bundle suggests none: name the operator's with -n")
        if not _LABEL.fullmatch(where):
            raise UserError(f"--namespace {where!r} is no namespace: use up to 63 lower case letters, digits and '-'")
        beside = [] if where == "default" else [namespace_object(where)]
        return self.filters.apply(install_order([*beside, *render(found, self.into.options(where))]))


@bundle.command(alias="run")
@uncollected
def extract(
    source: str,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    wanted: BundleFlags | None = None,
    temp_dir: Annotated[Path | None, Parameter(show=False)] = None,
) -> int:
    """Print the objects that install a bundle, in the order in which they can be applied.

    Parameters
    ----------
    source
        Folder, OCI layout, saved image, image in a registry, or with --catalog a package[:version].
    output
        File to write to; else stdout.
    wanted
        How, and where from.
    temp_dir
        Folder for what is too large for memory.

    """
    _use_folder(temp_dir)
    text = write_documents((wanted or BundleFlags()).objects(source))
    if output is None:
        _print(text)
    else:
        with _writing(output):
            output.write_text(text, encoding="utf-8")
    return 0


@bundle.command
@uncollected
def chart(
    source: str,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    name: str = "",
    pin: bool = False,
    wanted: BundleFlags | None = None,
) -> int:
    """Write a Helm chart that installs a bundle into any namespace; files that you added are kept.

    Parameters
    ----------
    source
        As for extract.
    output
        Folder of the chart, new or written by this command before.
    name
        Name of the chart; else the package's.
    pin
        Ask the registries for the digests of images that have only a tag.
    wanted
        As for extract.

    """
    from pointsman.bundle.chart.chart import make_chart
    from pointsman.bundle.chart.folder import write_chart

    asked = wanted or BundleFlags()
    found = asked.origin.read(source)
    files = make_chart(
        found,
        asked.into.options(asked.namespace),
        name=name,
        own_certificates=asked.into.own_certificates,
        images=asked.origin.digests(found) if pin else {},
        keep=asked.filters.apply,
    )
    write_chart(files, found, output)
    _print(f"{output}: chart of {found.csv.name}, {len(files)} files\n")
    return 0


@bundle.command
@uncollected
def diff(old: Side, new: Side, *, wanted: BundleFlags | None = None) -> int:
    """Print the differences between two bundles, or a bundle and manifests; exit 1 if there are any.

    Parameters
    ----------
    old
        Bundle as for extract, or a file of manifests that ends in .yaml, or - for stdin.
    new
        The same, for the other side.
    wanted
        As for extract.

    """
    from pointsman.bundle.compare import compare

    asked = wanted or BundleFlags()
    for each in (old, new):
        if each.startswith("-") and each != "-":
            raise UserError(f"Unknown option: {each}.")
    if old == new == "-":
        raise UserError("OLD and NEW are both stdin, which can be read once: name a file for one of them")

    def side(source: str) -> list[Object]:
        if source == "-" or source.endswith((".yaml", ".yml")):
            return asked.filters.apply(_manifests(source))
        return asked.objects(source)

    try:
        differences = compare(side(old), side(new))
    except PointsmanError as error:
        raise UserError(str(error)) from None  # 1 would mean a difference
    _print("".join(f"{each}\n" for each in differences))
    return _DIFFERENT if differences else 0


@bundle.command
@uncollected
def inspect(source: str, *, json: bool = False, origin: From | None = None) -> int:
    """Print a bundle's content, requirements and rule violations; exit 2 if it cannot be installed.

    Parameters
    ----------
    source
        As for extract.
    json
        As JSON, for programs.
    origin
        Where it comes from.

    """
    from json import dumps

    from pointsman.bundle.summary import lines, summarise

    summary = summarise((origin or From()).read(source))
    _print(dumps(summary, indent=2) + "\n" if json else "".join(f"{line}\n" for line in lines(summary)))
    return 2 if summary["problems"] else 0


@bundle.command
@uncollected
def krm() -> int:
    """Run as a KRM function: read a ResourceList with an Extractor from stdin, print it with the objects added."""
    from pointsman.bundle.krm import answer, read_request

    request = read_request(_only(read_documents(sys.stdin.buffer.read(), name="stdin"), name="stdin"))
    items = list(request.items)
    try:
        items += _from_extractor(request.extractor).objects(request.extractor.source)
    except PointsmanError as error:
        _print(write_documents([answer(items, error=str(error))]))
        raise
    _print(write_documents([answer(items)]))
    return 0


def _from_extractor(asked: "Extractor") -> BundleFlags:
    """Return what a function's configuration asks for, as flags would."""
    return BundleFlags(
        namespace=asked.namespace,
        filters=Filters(asked.include, asked.exclude),
        into=Into(
            watch_namespace=list(asked.watch_namespaces) or None,
            cert_manager_enabled=asked.cert_manager.enabled,
            cert_manager_issuer_name=asked.cert_manager.issuer_name,
            cert_manager_issuer_kind=asked.cert_manager.issuer_kind,
        ),
        origin=From(
            catalog=asked.catalog.source,
            channel=asked.catalog.channel,
            registry_insecure=asked.registry.insecure,
            registry_username=asked.registry.username,
            registry_password=asked.registry.password,
        ),
    )


def _own_certificates() -> Certificates:
    import datetime as dt

    from pointsman.bundle.render.authority import issuer

    return OwnCertificates(issuer(now=dt.datetime.now(dt.UTC)))


def _manifests(source: str) -> list[Object]:
    documents = read_documents(sys.stdin.buffer.read(), name="stdin") if source == "-" else _read_file(Path(source))
    flat = [each for one in documents for each in _items(one)]
    if not all(isinstance(each, dict) and isinstance(each.get("kind"), str) for each in flat):
        raise UserError(f"{source}: holds what is no Kubernetes object")
    return flat


def _items(document: Object) -> list[Object]:
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else [document]


def _read_file(path: Path) -> list[Object]:
    try:
        return read_documents(path.read_bytes(), name=str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _only(documents: list[Object], *, name: str) -> Object:
    if len(documents) != 1:
        raise UserError(f"{name}: must hold one document, not {len(documents)}")
    return documents[0]


def _print(text: str) -> None:
    """Print, and exit quietly when the reader has closed the pipe."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _use_folder(folder: Path | None) -> None:
    if folder is not None:
        import tempfile

        with _writing(folder):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        tempfile.tempdir = str(folder)

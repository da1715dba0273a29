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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, ParamSpec

from cyclopts import App, Parameter
from cyclopts.config import Env

from pointsman.bundle.certificates import Certificates, CertManager, OwnCertificates, ServiceCa
from pointsman.bundle.config import DeploymentConfig, read_config
from pointsman.bundle.model import Bundle, Object
from pointsman.bundle.objects import Options, install_order, namespace_object, render
from pointsman.bundle.reader import read_documents
from pointsman.bundle.sources import FromCatalog, Registries, read_bundle
from pointsman.bundle.writer import write_documents
from pointsman.core.errors import PointsmanError, UserError

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
    "Allow registries without TLS or with certificates that nobody vouches for."
    registry_username: str = ""
    "User for the registry; else what podman and docker have on file."
    registry_password: str = ""
    "Password for the registry."
    registry_ca: Path | None = None
    "Authority that vouches for the registry, in PEM."

    def read(self, source: str) -> Bundle:
        """Return the bundle that a source names."""
        where = FromCatalog(self.catalog, self.channel, self.installed)
        return read_bundle(source, registries=self._registries(), catalog=where)

    def digests(self, found: Bundle) -> dict[str, str]:
        """Return the images that have only a tag, with the digest that it has now."""
        from pointsman.bundle.sources import resolve_digest
        from pointsman.bundle.templating import images_of

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

    def options(self, namespace: str) -> Options:
        """Return what the renderer takes."""
        return Options(namespace, self.watch_namespace, self._certificates(), self._config())

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


Namespace = Annotated[str, Parameter(name=["--namespace", "-n"])]


@bundle.command(alias="run")
@uncollected
def extract(
    source: str,
    *,
    namespace: Namespace = "",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    filters: Filters | None = None,
    into: Into | None = None,
    origin: From | None = None,
    temp_dir: Annotated[Path | None, Parameter(show=False)] = None,
) -> int:
    """Print the objects that install a bundle, in the order in which they can be applied.

    Parameters
    ----------
    source
        Folder, OCI layout, saved image, image in a registry, or with --catalog a package[:version].
    namespace
        Namespace of the operator; else the one that the bundle suggests.
    output
        File to write to; else stdout.
    filters
        Which objects are wanted.
    into
        How it is installed.
    origin
        Where it comes from.
    temp_dir
        Folder for what is too large for memory.

    """
    _use_folder(temp_dir)
    found = (origin or From()).read(source)
    text = write_documents(_objects(found, namespace, into or Into(), filters or Filters()))
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
    namespace: Namespace = "",
    pin: bool = False,
    filters: Filters | None = None,
    into: Into | None = None,
    origin: From | None = None,
) -> int:
    """Write a Helm chart that installs a bundle into any namespace; files that you add to it stay.

    Parameters
    ----------
    source
        As for extract.
    output
        Folder of the chart, new or written by this command before.
    name
        Name of the chart; else the package's.
    namespace
        Name by which --watch-namespace means the namespace that the chart is installed into.
    pin
        Ask the registries for the digests of images that have only a tag.
    filters
        Which objects are wanted.
    into
        How it is installed.
    origin
        Where it comes from.

    """
    from pointsman.bundle.chart import make_chart
    from pointsman.bundle.folder import write_chart

    origin, into = origin or From(), into or Into()
    found = origin.read(source)
    images = origin.digests(found) if pin else {}
    files = make_chart(
        found,
        into.options(namespace),
        name=name,
        own_certificates=into.own_certificates,
        images=images,
        keep=(filters or Filters()).apply,
    )
    write_chart(files, found, output)
    _print(f"{output}: chart of {found.csv.name}, {len(files)} files\n")
    return 0


@bundle.command
@uncollected
def diff(
    old: str,
    new: str,
    *,
    namespace: Namespace = "",
    filters: Filters | None = None,
    into: Into | None = None,
    origin: From | None = None,
) -> int:
    """Print what differs between two bundles, or a bundle and manifests; exit 0 when nothing, 1 when something.

    Parameters
    ----------
    old
        Bundle as for extract, or a file of manifests that ends in .yaml, or - for stdin.
    new
        The same, for the other side.
    namespace
        Namespace of the operator; else the one that the bundle suggests.
    filters
        Which objects are wanted.
    into
        How it is installed.
    origin
        Where it comes from.

    """
    from pointsman.bundle.compare import compare

    def side(source: str) -> list[Object]:
        if source == "-" or source.endswith((".yaml", ".yml")):
            return (filters or Filters()).apply(_manifests(source))
        return _objects((origin or From()).read(source), namespace, into or Into(), filters or Filters())

    try:
        differences = compare(side(old), side(new))
    except PointsmanError as error:
        raise UserError(str(error)) from None  # 1 would mean a difference
    _print("".join(f"{each}\n" for each in differences))
    return _DIFFERENT if differences else 0


@bundle.command
@uncollected
def inspect(source: str, *, json: bool = False, origin: From | None = None) -> int:
    """Print what a bundle holds, needs, and breaks; exit 2 when it cannot be installed.

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
    """Be a KRM function: read a ResourceList with an Extractor from stdin, print it with the bundle's objects added."""
    from pointsman.bundle.krm import answer, read_request

    request = read_request(_only(read_documents(sys.stdin.buffer.read(), name="stdin"), name="stdin"))
    wanted = request.extractor
    origin = From(
        catalog=wanted.catalog.source,
        channel=wanted.catalog.channel,
        registry_insecure=wanted.registry.insecure,
        registry_username=wanted.registry.username,
        registry_password=wanted.registry.password,
    )
    into = Into(
        watch_namespace=list(wanted.watch_namespaces) or None,
        cert_manager_enabled=wanted.cert_manager.enabled,
        cert_manager_issuer_name=wanted.cert_manager.issuer_name,
        cert_manager_issuer_kind=wanted.cert_manager.issuer_kind,
    )
    items = list(request.items)
    try:
        found = origin.read(wanted.source)
        items += _objects(found, wanted.namespace, into, Filters(wanted.include, wanted.exclude))
    except PointsmanError as error:
        _print(write_documents([answer(items, error=str(error))]))
        raise
    _print(write_documents([answer(items)]))
    return 0


def _objects(found: Bundle, namespace: str, into: Into, filters: Filters) -> list[Object]:
    where = namespace or found.suggested_namespace
    if not where:
        raise UserError("--namespace is missing, and the bundle suggests none: name the operator's namespace with -n")
    if not _LABEL.fullmatch(where):
        raise UserError(f"--namespace {where!r} is no namespace: use up to 63 lower case letters, digits and '-'")
    objects = render(found, into.options(where))
    beside = [] if where == "default" else [namespace_object(where)]
    return filters.apply(install_order([*beside, *objects]))


def _own_certificates() -> Certificates:
    import datetime as dt

    from pointsman.bundle.authority import issuer

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
    """Print, and stop without a word when whoever reads has read enough."""
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

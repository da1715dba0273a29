"""OLM bundles without OLM: read, checked, rendered to the objects that install them, or to a chart.

    found = read_bundle("quay.io/example/bundle:v1", registries=Registries(environment=os.environ))
    objects = render(found, InstallOptions(namespace="example", certificates=CertManager()))
    print(write_documents(install_order(objects)))

All but `read_bundle` is pure. What is refused is a `Refused` with findings that name their rules. Charts are in
`pointsman.bundle.chart.chart` and `pointsman.bundle.chart.folder`, which a bundle that is only printed need not import.
"""

from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle, BundleFinding, Refused
from pointsman.bundle.render.certificates import Certificates, CertManager, OwnCertificates, ServiceCa
from pointsman.bundle.render.config import DeploymentConfig, read_config
from pointsman.bundle.render.objects import InstallOptions, install_order, render
from pointsman.bundle.sources.source import FromCatalog, Registries, read_bundle
from pointsman.bundle.validate import findings
from pointsman.bundle.writer import write_documents

__all__ = [
    "Bundle",
    "BundleFinding",
    "CertManager",
    "Certificates",
    "DeploymentConfig",
    "FromCatalog",
    "InstallOptions",
    "OwnCertificates",
    "Refused",
    "Registries",
    "ServiceCa",
    "findings",
    "install_order",
    "load_bundle",
    "read_bundle",
    "read_config",
    "render",
    "write_documents",
]

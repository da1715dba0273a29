"""OLM bundles without OLM: read, checked, rendered to the objects that install them, or to a chart.

    found = read_bundle("quay.io/example/bundle:v1", registries=Registries(environment=os.environ))
    objects = render(found, Options(namespace="example", certificates=CertManager()))
    print(write_documents(install_order(objects)))

All but `read_bundle` is pure. What is refused is a `Refused` with findings that name their rules. Charts are in
`pointsman.bundle.chart` and `pointsman.bundle.folder`, which a bundle that is only printed need not import.
"""

from pointsman.bundle.certificates import Certificates, CertManager, OwnCertificates, ServiceCa
from pointsman.bundle.config import DeploymentConfig, read_config
from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle, BundleFinding, Refused
from pointsman.bundle.objects import InstallOptions, install_order, render
from pointsman.bundle.sources import FromCatalog, Registries, read_bundle
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

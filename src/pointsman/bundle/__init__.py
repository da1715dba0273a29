"""OLM bundles without OLM: read, checked, and rendered to the objects that install them."""

from pointsman.bundle.certificates import Certificates, CertManager, Issued, OwnCertificates, ServiceCa, Serving
from pointsman.bundle.config import DeploymentConfig, read_config
from pointsman.bundle.load import load_bundle
from pointsman.bundle.model import Bundle, Finding, Refused
from pointsman.bundle.objects import Options, render
from pointsman.bundle.validate import findings

__all__ = [
    "Bundle",
    "CertManager",
    "Certificates",
    "DeploymentConfig",
    "Finding",
    "Issued",
    "Options",
    "OwnCertificates",
    "Refused",
    "ServiceCa",
    "Serving",
    "findings",
    "load_bundle",
    "read_config",
    "render",
]

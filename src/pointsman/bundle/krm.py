"""A bundle as a KRM function: a ResourceList comes in, the same list with the bundle's objects goes out.

The function's configuration is olm-extractor's `Extractor`, so a kustomization for that tool works with this one.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from pointsman.bundle.model import Object, without_nulls
from pointsman.core.errors import UserError

API_VERSION = "config.kubernetes.io/v1"


class ExtractorCatalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which catalog, which channel."""

    source: str = ""
    channel: str = ""


class ExtractorCertManager(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Whether and by whom certificates are issued."""

    enabled: bool = True
    issuer_name: str = ""
    issuer_kind: str = ""


class ExtractorRegistry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the registry is reached."""

    insecure: bool = False
    username: str = ""
    password: str = ""


class Extractor(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The specification of a function's configuration."""

    source: str
    namespace: str
    catalog: ExtractorCatalog = ExtractorCatalog()
    include: list[str] = []
    exclude: list[str] = []
    cert_manager: ExtractorCertManager = ExtractorCertManager()
    registry: ExtractorRegistry = ExtractorRegistry()
    watch_namespaces: list[str] = []


@dataclass(frozen=True, slots=True)
class KrmRequest:
    """What came in: the items that are handed on, and what is asked for."""

    items: tuple[Object, ...]
    extractor: Extractor


def read_request(document: Any) -> KrmRequest:
    """Return a ResourceList as a request; raises UserError with the path of what is wrong."""
    if not isinstance(document, dict) or document.get("kind") != "ResourceList":
        raise UserError("stdin: must be one ResourceList (config.kubernetes.io/v1)")
    config = document.get("functionConfig") or {}
    if not isinstance(config, dict) or config.get("kind") != "Extractor":
        raise UserError("stdin: functionConfig.kind must be Extractor")
    items = document.get("items") or []
    if not isinstance(items, list):
        raise UserError("stdin: items must be a list")
    try:
        return KrmRequest(tuple(items), msgspec.convert(without_nulls(config.get("spec") or {}), Extractor))
    except msgspec.ValidationError as error:
        raise UserError(f"stdin: functionConfig.spec: {error}") from None


def answer(items: list[Object], *, error: str = "") -> Object:
    """Return the ResourceList that goes out, with the error in it if there was one."""
    results = {"results": [{"message": error, "severity": "error"}]} if error else {}
    return {"apiVersion": API_VERSION, "kind": "ResourceList", "items": items, **results}

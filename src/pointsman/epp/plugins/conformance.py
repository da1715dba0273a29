"""What the Gateway API conformance suite needs of a picker. Not for production: a client decides where it goes."""

from collections.abc import Sequence

from pointsman.epp.plugins.api import SERVED, Endpoints
from pointsman.epp.pool.endpoint import host_of
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

TESTING_HEADER = "test-epp-endpoint-selection"
SERVED_HEADER = "x-conformance-test-served-endpoint"


class HeaderBasedTestingFilter:
    """The endpoints that a test's header names, in its order; nobody without the header (conformance tests only)."""

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep those that are named by address, or by address and port."""
        wanted = [part.strip() for part in request.headers.get(TESTING_HEADER, "").split(",") if part.strip()]
        kept: list[EndpointView] = []
        for name in wanted:
            kept += [each for each in endpoints if _is_named(each, name) and each not in kept]
        return kept


def _is_named(endpoint: EndpointView, name: str) -> bool:
    return name == endpoint.target or (host_of(name) == name and host_of(endpoint.address) == name)


class ServedVerifier:
    """Tells the client which endpoint the proxy says it used; a proxy that does not say it fails."""

    def on_response(self, request: Request, _endpoint: EndpointView) -> Sequence[tuple[str, str]]:
        """Repeat it, whether we know such an endpoint or not."""
        said = request.attributes.get(SERVED)
        if said is None:
            said = "fail: missing envoy lb metadata"
        return ((SERVED_HEADER, str(said) or "fail: missing destination endpoint served metadata"),)

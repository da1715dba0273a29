"""What the Gateway API conformance suite asks of a picker's two plugins."""

import pytest
from tests.unit.epp.plugins.making import endpoint, make, request

from pointsman.epp.plugins.api import SERVED


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param({SERVED: "10.0.0.1:3000"}, "10.0.0.1:3000", id="as the proxy says"),
        pytest.param({SERVED: "192.0.2.9:1"}, "192.0.2.9:1", id="also of an endpoint that we do not know"),
        pytest.param({}, "fail: missing envoy lb metadata", id="it says nothing"),
        pytest.param({SERVED: ""}, "fail: missing destination endpoint served metadata", id="it says something else"),
    ],
)
def test_only_what_the_proxy_says_counts(attributes: dict[str, object], expected: str) -> None:
    verifier = make("destination-endpoint-served-verifier")
    headers = verifier.on_response(request(attributes=attributes), endpoint("a"))
    assert headers == (("x-conformance-test-served-endpoint", expected),)

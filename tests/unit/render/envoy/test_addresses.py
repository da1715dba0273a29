import pytest

from pointsman.render.envoy.addresses import Address


@pytest.mark.parametrize(
    ("host", "text"),
    [pytest.param("10.0.0.1", "10.0.0.1:80", id="ipv4"), pytest.param("fd00::1", "[fd00::1]:80", id="ipv6")],
)
def test_address_reads_as_envoy_compares_it(host: str, text: str) -> None:
    assert str(Address(host, 80)) == text

import pytest

from pointsman.render.envoy.addresses import Address, read_address


@pytest.mark.parametrize(
    ("host", "text"),
    [pytest.param("10.0.0.1", "10.0.0.1:80", id="ipv4"), pytest.param("fd00::1", "[fd00::1]:80", id="ipv6")],
)
def test_address_reads_as_envoy_compares_it(host: str, text: str) -> None:
    assert str(Address(host, 80)) == text


@pytest.mark.parametrize("text", ["127.0.0.1:80", "http://127.0.0.1:80"])
def test_an_address_is_read(text: str) -> None:
    assert read_address(text) == Address("127.0.0.1", 80)


def test_address_of_ipv6() -> None:
    assert read_address("http://[::1]:80") == Address("::1", 80)

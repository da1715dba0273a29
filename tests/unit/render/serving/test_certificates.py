"""When a certificate stays and when it does not."""

import base64
import datetime as dt
from typing import Any

import pytest

from pointsman.core.certificates import issued, self_signed
from pointsman.render.serving import certificates
from pointsman.render.serving.certificates import LIFETIME, RENEWED_AT, judge, wanted_names
from pointsman.render.serving.names import ServiceNames

NAMES = ServiceNames(service="phi3", namespace="models")
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WANTED = wanted_names(NAMES, domain="cluster.local", addresses=["10.0.0.1", "fd00::1", "", "None"])


def made(wanted: certificates.CertificateNames = WANTED, now: dt.datetime = NOW) -> tuple[bytes, bytes]:
    return issued(dns=sorted(wanted.dns), addresses=sorted(wanted.addresses), now=now, lifetime=LIFETIME)


CERTIFICATE, KEY = made()


def secret(certificate: bytes = CERTIFICATE, key: bytes = KEY) -> dict[str, Any]:
    return certificates.secret(NAMES, certificate=certificate, key=key, renew_at=NOW)


def test_names_are_those_of_services_and_addresses_that_are_some() -> None:
    assert "phi3-epp-service.models.svc.cluster.local" in WANTED.dns
    assert {"localhost", "phi3-epp-service", "phi3-kserve-workload-svc.models.svc"} < WANTED.dns
    assert WANTED.addresses == {"127.0.0.1", "10.0.0.1", "fd00::1"}


def test_a_good_one_stays_until_four_fifths_of_its_time() -> None:
    found = judge(secret(), WANTED, now=NOW)
    assert found.usable and found.renew_at is not None
    assert abs(found.renew_at - (NOW + LIFETIME * RENEWED_AT)) < dt.timedelta(hours=1)
    assert judge(secret(), WANTED, now=found.renew_at - dt.timedelta(seconds=1)).usable
    late = judge(secret(), WANTED, now=found.renew_at)
    assert not late.usable and late.reason.startswith("it expires at 2027-01-01")


def test_another_spelling_of_an_address_is_no_reason() -> None:
    """It would be one again with the next certificate, and so on."""
    again = wanted_names(NAMES, domain="cluster.local", addresses=["10.0.0.1", "FD00:0:0::1"])
    assert judge(secret(), again, now=NOW).usable


def test_addresses_that_went_are_no_reason() -> None:
    fewer = wanted_names(NAMES, domain="cluster.local")
    assert judge(secret(), fewer, now=NOW).usable


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param(None, "there is none", id="none"),
        pytest.param({"data": {}}, "it cannot be read", id="empty"),
        pytest.param({"data": {"tls.crt": "!", "tls.key": "!"}}, "it cannot be read", id="no base64"),
        pytest.param(secret(certificate=b"nonsense"), "it cannot be read", id="no certificate"),
        pytest.param(secret(key=made()[1]), "its key is of another certificate", id="two halves"),
        pytest.param(secret(*self_signed()), "it is not for 10.0.0.1, fd00::1, phi3-epp-service", id="of another"),
        pytest.param(secret(*made(now=NOW - 2 * LIFETIME)), "it expired at 2025", id="expired"),
        pytest.param(secret(*made(now=NOW + LIFETIME)), "it is not valid before 2026-12-31", id="of next year"),
    ],
)
def test_what_cannot_stay_says_why(document: dict[str, Any] | None, reason: str) -> None:
    found = judge(document, WANTED, now=NOW)
    assert not found.usable
    assert reason in found.reason


def test_what_is_kept_is_written_as_it_is() -> None:
    made = secret()
    assert certificates.kept(made, NAMES) == made
    data = {name: base64.b64decode(text) for name, text in made["data"].items()}
    assert data == {"tls.crt": CERTIFICATE, "tls.key": KEY, "ca.crt": CERTIFICATE}
    assert made["type"] == "kubernetes.io/tls"

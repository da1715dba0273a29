"""When Istio makes the Pods of a Gateway."""

import pytest

from pointsman.render.manifests.facts import Facts


@pytest.mark.parametrize(
    ("api", "classes", "expected"),
    [
        pytest.param(True, {"istio", "other"}, True, id="both"),
        pytest.param(True, {"other"}, False, id="another's class"),
        pytest.param(False, {"istio"}, False, id="a class whose API just went"),
    ],
)
def test_istio_makes_gateways(api: bool, classes: set[str], expected: bool) -> None:
    assert Facts(gateway_api=api, gateway_classes=frozenset(classes)).istio_gateway is expected

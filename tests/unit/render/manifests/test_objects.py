"""The shapes of objects, as far as a mistake in them costs something."""

import pytest
from tests.unit.render.stacks import resource

from pointsman.api.base import Resources
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.names import names_of

NAMES = names_of(resource("a"))


def test_a_checksum_is_of_the_data_and_not_of_its_order() -> None:
    one = objects.digest({"a": "1", "b": "2"})
    assert one == objects.digest({"b": "2", "a": "1"})
    others = [{"a": "1", "b": "3"}, {"a": "1"}, {"a": "1b", "b": "2"}, {"ab": "1", "": "2"}, {}]
    assert len({one, *map(objects.digest, others)}) == 6
    assert len(one) == 16


def test_a_deployment_rolls_when_its_checksum_changes_and_only_then() -> None:
    def template(checksum: str) -> objects.Object:
        made = objects.deployment(
            "d", names=NAMES, labels={}, selector={}, replicas=1, pod={"containers": []}, checksum=checksum
        )
        found: objects.Object = made["spec"]["template"]
        return found

    assert template("x") == template("x") != template("y")
    assert "annotations" not in template("")["metadata"]


def test_a_deployment_is_never_away_while_it_rolls_unless_told() -> None:
    parts = {"names": NAMES, "labels": {}, "selector": {}, "replicas": 1, "pod": {}}
    usual = objects.deployment("d", **parts)["spec"]["strategy"]["rollingUpdate"]  # type: ignore[arg-type] # one dict for two calls
    assert usual == {"maxSurge": 1, "maxUnavailable": 0}
    said = objects.deployment("d", **parts, rolling={"maxSurge": 0})["spec"]["strategy"]["rollingUpdate"]  # type: ignore[arg-type] # as above
    assert said == {"maxSurge": 0}


@pytest.mark.parametrize(("openshift", "users"), [(False, {"runAsUser", "runAsGroup"}), (True, set())])
def test_who_gives_out_user_ids(openshift: bool, users: set[str]) -> None:
    spec = objects.pod({"name": "c"}, facts=Facts(openshift=openshift), grace=5)
    assert {name for name in spec["securityContext"] if name in {"runAsUser", "runAsGroup"}} == users


def test_a_pod_keeps_the_mounts_of_its_container_and_gets_a_place_to_write() -> None:
    volume, mount = objects.mounted("settings", path="/config")
    spec = objects.pod({"name": "c", "volumeMounts": [mount]}, facts=Facts(), grace=5, volumes=[volume])
    assert [one["name"] for one in spec["volumes"]] == ["config", "tmp"]
    assert [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]] == ["/config", "/tmp"]
    assert mount["readOnly"] is True


def test_a_headless_service_has_no_address() -> None:
    spec = objects.service("s", names=NAMES, labels={}, selector={}, ports=[], headless=True)["spec"]
    assert spec["clusterIP"] == "None"
    assert "clusterIP" not in objects.service("s", names=NAMES, labels={}, selector={}, ports=[])["spec"]


@pytest.mark.parametrize("wanted", [None, Resources()], ids=["nothing", "an empty block"])
def test_no_resources_is_no_field(wanted: Resources | None) -> None:
    assert objects.resources(wanted) == {}


def test_resources_are_as_they_were_said() -> None:
    wanted = Resources.model_validate({"limits": {"cpu": 1}, "claims": [{"name": "gpu"}]})
    assert objects.resources(wanted) == {"resources": {"limits": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}


def test_each_pod_gets_its_own_devices_from_a_template() -> None:
    container = {"name": "c", "resources": {"claims": [{"name": "gpu", "request": "one"}, {"name": "nic"}]}}
    spec = objects.pod(container, facts=Facts(), grace=5)
    assert spec["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "gpu"},
        {"name": "nic", "resourceClaimTemplateName": "nic"},
    ]
    assert "resourceClaims" not in objects.pod({"name": "c"}, facts=Facts(), grace=5)

"""Every rendering of tests/unit/render, as a real API server sees it: each object valid, each Pod restricted.

Nothing is kept (`dryRun`); defaulting, validation, the rules of published definitions and admission are all real.
"""

from collections.abc import Iterator

import pytest
from tests.cluster.conftest import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.simulators import POD, defined, refusal
from tests.unit.render.stacks import CASES, Case
from tests.waiting import eventually

from pointsman.kube import Client, Key
from pointsman.operator.kinds import MADE

KINDS = {(kind.api_version, kind.kind): kind for kind in MADE}
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module", autouse=True)
def _defined(plane: ControlPlane) -> Iterator[None]:
    with defined(plane):
        yield


@pytest.fixture
async def restricted(client: Client, namespace: str) -> str:
    """A namespace that admits only what the strictest Pod Security level admits."""
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await client.patch(NAMESPACE, Key("", namespace), labels, how="merge")
    pod = {"metadata": {"name": "x", "namespace": namespace}, "spec": {"containers": [{"name": "x", "image": "x"}]}}

    async def in_force() -> None:
        assert "violates PodSecurity" in await refusal(client, POD, pod)

    await eventually(in_force)  # which also says that the namespace has its default account
    return namespace


@cases
async def test_every_object_is_valid(client: Client, namespace: str, case: Case) -> None:
    for document in case.render().objects:
        kind = KINDS[document["apiVersion"], document["kind"]]
        document["metadata"]["namespace"] = namespace
        how = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}
        key = Key(namespace, document["metadata"]["name"])
        await client.patch(kind, key, document, how="apply", parameters=how)


@cases
async def test_every_pod_is_admitted_where_only_restricted_ones_are(
    client: Client, restricted: str, case: Case
) -> None:
    for deployment in case.render().objects:
        if deployment["kind"] == "Deployment":
            pod = {**deployment["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
            pod["metadata"] = {**pod["metadata"], "name": "x", "namespace": restricted}
            pod["spec"].pop("serviceAccountName", None)  # a dry run made none
            parameters = {"dryRun": "All", "fieldValidation": "Strict"}
            await client.request("POST", POD.path(restricted), body=pod, parameters=parameters)

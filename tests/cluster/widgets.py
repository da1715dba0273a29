"""The example operator of the documentation, and the custom resource it serves, for tests to run.

The code is taken from the page itself: if the page is wrong, tests fail.
"""

import asyncio
import json
import re
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.controlplane import DEFINITION_PATIENCE
from tests.waiting import eventually

from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION, key_of
from pointsman.kube import Client, Key, Kind, Object, Runtime
from pointsman.kube.errors import NotFound, Stale

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "controller-runtime.md"
WIDGET = Kind("example.dev", "v1", "Widget", "widgets")
CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")
T = TypeVar("T")

DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.dev"},
    "spec": {
        "group": "example.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "copies": {"type": "integer"},
                                    "text": {"type": "string"},
                                    "namespace": {"type": "string"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def source() -> str:
    """Return the code of the page."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return str(code)


def operator(client: Client, **options: Any) -> Runtime:
    """Return the runtime of the page's operator."""
    module = types.ModuleType("widget_operator")
    exec(compile(source(), str(PAGE), "exec"), vars(module))
    runtime = module.operator(client, **options)
    assert isinstance(runtime, Runtime)
    return runtime


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[Runtime]:
    """Run a runtime while the block runs."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runtime.run())
        yield runtime
        task.cancel()


async def define(client: Client) -> None:
    """Make the API server serve widgets."""
    try:
        await client.create(CUSTOM_RESOURCE_DEFINITION, DEFINITION)
    except Stale:
        pass
    await eventually(lambda: client.request("GET", WIDGET.path()))


async def undefine(client: Client, name: str = "widgets.example.dev") -> None:
    """Take a kind away, the objects that exist included, and wait until they are gone."""
    key = Key("", name)
    try:
        await client.delete(CUSTOM_RESOURCE_DEFINITION, key)
    except NotFound:
        return

    async def gone() -> None:
        try:
            await client.get(CUSTOM_RESOURCE_DEFINITION, key)
        except NotFound:
            return
        raise AssertionError("the definition is still there")

    await eventually(gone, within=DEFINITION_PATIENCE)


async def release_widgets(client: Client, namespace: str) -> None:
    """Delete widgets and take their finalizers off, in this order: an operator of a later test would put them back."""
    try:
        await client.request("DELETE", WIDGET.path(namespace))
        found = json.loads(await client.request("GET", WIDGET.path(namespace)))["items"]
        for one in found:
            await client.patch(WIDGET, key_of(one), {"metadata": {"finalizers": []}}, how="merge")
    except NotFound:
        return


def widget(namespace: str, name: str, /, *, copies: int = 1, text: str = "hello", **spec: Any) -> Object:
    """Return a widget."""
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"copies": copies, "text": text, **spec},
    }


async def texts(client: Client, namespace: str) -> dict[str, str]:
    """Return the ConfigMaps of a namespace that the operator made, as the server has them."""
    selector = {"labelSelector": "app.kubernetes.io/managed-by=widget-operator"}
    answer = await client.request("GET", CONFIGMAP.path(namespace), parameters=selector)
    return {item["metadata"]["name"]: item["data"]["text"] for item in json.loads(answer)["items"]}


async def quiet(count: Callable[[], object], *, lasting: float = 1.5, within: float = 60.0) -> None:
    """Wait until a count has not changed for so long: until then someone had still something to do.

    The operator writes a status that is only numbers once in a second, so half a second of rest proves nothing.
    """
    loop = asyncio.get_running_loop()
    deadline, last, since = loop.time() + within, count(), loop.time()
    while loop.time() - since < lasting:
        assert loop.time() < deadline, f"no rest within {within:g} s: {last}"
        await asyncio.sleep(0.05)
        if (now := count()) != last:
            last, since = now, loop.time()


async def expect(client: Client, namespace: str, expected: dict[str, str]) -> None:
    """Wait until the namespace has exactly these copies."""

    async def equal() -> None:
        assert await texts(client, namespace) == expected

    await eventually(equal)

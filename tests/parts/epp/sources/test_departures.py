"""What becomes of objects that went, by what the API server says of their kind; tests/cluster asks the real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.logs import captured

from pointsman.core.http import Request, Response, Server
from pointsman.epp.sources.departures import Departures, takes_objects
from pointsman.kube import Client, Kind, Object

POOL = Kind("example.dev", "v1", "Pool", "pools")
RULE = Kind("example.dev", "v1", "Rule", "rules")
EVERY = ["create", "delete", "get", "list", "watch"]


def discovery(verbs: list[str], *, name: str = "rules") -> bytes:
    return json.dumps({"resources": [{"name": name, "verbs": verbs}, {"name": f"{name}/status"}]}).encode()


def named(name: str) -> Object:
    return {"metadata": {"name": name}}


class Scene:
    """An API server that answers what it is told to, and departures that ask it."""

    def __init__(self) -> None:
        self.answer = Response(200, discovery(EVERY))
        self.questions = 0
        self.dropped: list[str] = []

    async def __call__(self, request: Request) -> Response:
        assert request.path == "/apis/example.dev/v1"
        self.questions += 1
        return self.answer

    @asynccontextmanager
    async def departures(self, *, grace: float = 60.0) -> AsyncIterator[Departures]:
        async with Server() as server, asyncio.TaskGroup() as tasks:
            listener = await server.listen(self, host="127.0.0.1", port=0)
            http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False)
            async with Client(http) as client:
                made = Departures(client, grace=grace, kept=[POOL], judged=[RULE], drop=self._drop)
                task = tasks.create_task(made.run())
                yield made
                task.cancel()

    def _drop(self, kind: Kind, document: Object) -> None:
        self.dropped.append(f"{kind.plural}/{document['metadata']['name']}")

    async def until_dropped(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.dropped) < count:  # noqa: ASYNC110 - a test may poll
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "takes"),
    [
        (discovery(EVERY), True),
        (discovery(["delete", "get", "list", "watch"]), False),  # its definition is being deleted
        (discovery(EVERY, name="others"), False),  # the definition is gone, others of the group are there
        (b"{}", False),
    ],
)
def test_what_discovery_says(answer: bytes, takes: bool) -> None:
    assert takes_objects(answer, RULE) is takes


async def test_one_that_somebody_deleted_is_dropped_long_before_the_grace_time() -> None:
    scene = Scene()
    async with scene.departures() as departures:
        departures.went(RULE, named("a"))
        await scene.until_dropped(1)
    assert scene.dropped == ["rules/a"]


@pytest.mark.parametrize(
    "answer",
    [
        Response(200, discovery(["get", "list"])),
        Response(404, b"404 page not found"),
        Response(403, b'{"message": "no"}'),
        Response(200, b"<html>"),
    ],
    ids=["going", "gone", "forbidden", "nonsense"],
)
async def test_one_whose_definition_goes_is_kept_for_the_grace_time(answer: Response) -> None:
    scene = Scene()
    scene.answer = answer
    began = asyncio.get_running_loop().time()
    async with scene.departures(grace=0.5) as departures:
        departures.went(RULE, named("a"))
        await scene.until_dropped(1)
    assert asyncio.get_running_loop().time() - began > 0.5
    assert scene.questions == 1


async def test_one_that_comes_back_was_never_gone() -> None:
    scene = Scene()
    scene.answer = Response(404, b"")
    async with scene.departures(grace=0.2) as departures:
        for kind in (POOL, RULE):
            departures.went(kind, named("back"))
            departures.went(kind, named("gone"))
        await asyncio.sleep(0)
        departures.came(POOL, named("back"))
        departures.came(RULE, named("back"))
        departures.came(RULE, named("new"))
        await scene.until_dropped(2)
        departures.went(RULE, named("back"))
        await scene.until_dropped(3)
    assert sorted(scene.dropped) == ["pools/gone", "rules/back", "rules/gone"]


async def test_thousands_that_go_are_few_questions_and_few_lines() -> None:
    scene = Scene()
    scene.answer = Response(404, b"")
    with captured() as logs:
        async with scene.departures(grace=0.5) as departures:
            for hundred in range(50):
                for number in range(100):
                    departures.went(RULE, named(f"{hundred}-{number}"))
                await asyncio.sleep(0.005)
            await scene.until_dropped(5000)
    assert scene.questions <= 20
    assert len(logs) <= 4, logs

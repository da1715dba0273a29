"""The endpoints file: what it can say, what it cannot, and names that move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from pointsman.core.errors import UserError
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.request.objectives import Objective
from pointsman.epp.request.rewrites import Rewrite, RewriteRule, Target
from pointsman.epp.sources.file import FileSource, Listing, parse_listing

FULL = b"""
endpoints:
- {name: a, address: 10.0.0.1, port: 8000, namespace: llm, labels: {role: decode, n: 7}}
- {address: "FD00:0::1", port: "8001"}
- {name: c, address: gpu.example.org, port: 8000}
objectives:
- {name: batch, priority: -1}
- {name: plain}
modelRewrites:
- {name: canary, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: m2, weight: 10}]}]}
"""


def test_everything_that_a_file_can_say() -> None:
    listing = parse_listing(FULL, name="file")
    first, second, third = listing.endpoints
    assert first == Endpoint(
        name="a", address="10.0.0.1", port=8000, namespace="llm", labels={"role": "decode", "n": "7"}
    )
    assert (second.name, second.target, second.namespace) == ("fd00::1:8001", "[fd00::1]:8001", "default")
    assert third.address == "gpu.example.org"
    assert listing.hosts == ("gpu.example.org",)
    assert listing.objectives == (Objective(name="batch", priority=-1), Objective(name="plain"))
    rules = (RewriteRule(models=("m",), targets=(Target(model="m2", weight=10),)),)
    assert listing.rewrites == (Rewrite(name="canary", rules=rules),)
    assert parse_listing(b"", name="file") == Listing()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(b"[]", "file: expected a mapping with a list `endpoints`", id="not a mapping"),
        pytest.param(b"endpoints: 7", "file: expected a mapping with a list `endpoints`", id="not a list"),
        pytest.param(b"endpoint: []", "file: unknown field 'endpoint'", id="unknown section"),
        pytest.param(b"endpoints: [7]", "file: endpoints[0]: expected a mapping", id="not an entry"),
        pytest.param(b"endpoints: [{ip: 1}]", "file: endpoints[0].ip: unknown field", id="unknown field"),
        pytest.param(b"endpoints: [{address: 10.0.0.1}]", "file: endpoints[0].port: None is not a port", id="no port"),
        pytest.param(b"endpoints: [{address: 10.0.0.1, port: 70000}]", "endpoints[0].port: 70000 is out", id="port"),
        pytest.param(b"endpoints: [{port: 1}]", "endpoints[0].address: None is neither", id="no address"),
        pytest.param(b"endpoints: [{address: 10.0.0.300, port: 1}]", "'10.0.0.300' is neither", id="mistyped IPv4"),
        pytest.param(b"endpoints: [{address: a_/b, port: 1}]", "'a_/b' is neither", id="no name"),
        pytest.param(
            b"endpoints: [{address: '::1', port: 1, labels: 7}]", "endpoints[0].labels: expected", id="labels"
        ),
        pytest.param(
            b"endpoints: [{address: 10.0.0.1, port: 1}, {address: 10.0.0.1, port: 1}]",
            "endpoints[1]: 10.0.0.1:1 is endpoints[0] already",
            id="twice",
        ),
        pytest.param(b"objectives: [{priority: 1}]", "file: objectives[0].name: missing", id="objective without name"),
        pytest.param(b"objectives: [{name: a, priority: x}]", "objectives[0].priority: 'x' is not", id="priority"),
        pytest.param(b"modelRewrites: [{name: a}]", "modelRewrites[0].rules: expected", id="no rules"),
        pytest.param(b"modelRewrites: [{name: a, rules: [{}]}]", "modelRewrites[0].rules[0].targets", id="no targets"),
        pytest.param(b"endpoints: [", "file:2:1: not valid YAML", id="not YAML"),
        pytest.param(b"#" * (1 << 20) + b"\n", "bytes are too many", id="too large"),
    ],
)
def test_what_is_wrong_is_named(text: bytes, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        parse_listing(text, name="file")
    assert sentence in str(error.value)


def test_a_name_stands_for_all_its_addresses() -> None:
    listing = parse_listing(FULL, name="file")
    one = listing.resolved({"gpu.example.org": ("10.0.0.9",)})
    assert [(endpoint.name, endpoint.target) for endpoint in one[2:]] == [("c", "10.0.0.9:8000")]
    two = listing.resolved({"gpu.example.org": ("10.0.0.1", "fd00::9")})
    assert [(endpoint.name, endpoint.target) for endpoint in two[2:]] == [("c-fd00::9", "[fd00::9]:8000")]
    assert len(listing.resolved({})) == 2


class Seen:
    """What a source handed over, with names that we decide on."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.uses = 0
        self.failures = 0
        self.names: dict[str, tuple[str, ...]] = {}

    def use(self, _: Listing, endpoints: tuple[Endpoint, ...]) -> None:
        self.targets = [endpoint.target for endpoint in endpoints]
        self.uses += 1

    def failed(self) -> None:
        self.failures += 1

    async def lookup(self, host: str) -> tuple[str, ...]:
        await asyncio.sleep(0)
        if host not in self.names:
            raise OSError("unknown")
        return self.names[host]


@asynccontextmanager
async def following(path: Path, seen: Seen) -> AsyncIterator[None]:
    source = FileSource(path, use=seen.use, failed=seen.failed, lookup=seen.lookup, lookup_seconds=0.02)
    await source.start()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(source.run())
        yield
        task.cancel()


async def test_names_are_looked_up_again_and_kept_while_that_fails(tmp_path: Path) -> None:
    path, seen = tmp_path / "endpoints.yaml", Seen()
    path.write_bytes(b"endpoints: [{address: gpu.example.org, port: 80}]")
    async with following(path, seen):
        assert seen.targets == []
        seen.names["gpu.example.org"] = ("10.0.0.1",)
        await until(lambda: seen.targets == ["10.0.0.1:80"])
        seen.names["gpu.example.org"] = ("10.0.0.2",)
        await until(lambda: seen.targets == ["10.0.0.2:80"])
        uses = seen.uses
        seen.names.clear()
        await asyncio.sleep(0.1)
        assert (seen.targets, seen.uses) == (["10.0.0.2:80"], uses)


async def test_a_bad_version_is_not_used(tmp_path: Path) -> None:
    path, seen = tmp_path / "endpoints.yaml", Seen()
    path.write_bytes(b"endpoints: [{address: 10.0.0.1, port: 80}]")
    async with following(path, seen):
        assert seen.targets == ["10.0.0.1:80"]
        path.write_bytes(b"endpoints: [{address: 10.0.0.1}]")
        await until(lambda: seen.failures == 1)
        assert seen.targets == ["10.0.0.1:80"]
        path.write_bytes(b"endpoints: [{address: 10.0.0.2, port: 80}]")
        await until(lambda: seen.targets == ["10.0.0.2:80"])


async def test_a_first_version_must_be_right(tmp_path: Path) -> None:
    source = FileSource(tmp_path / "none.yaml", use=Seen().use, failed=Seen().failed)
    with pytest.raises(UserError, match="cannot be read"):
        await source.start()


async def test_this_machine_has_a_name(tmp_path: Path) -> None:
    path, seen = tmp_path / "endpoints.yaml", Seen()
    path.write_bytes(b"endpoints: [{name: me, address: localhost, port: 80}]")
    await FileSource(path, use=seen.use, failed=seen.failed).start()
    assert "127.0.0.1:80" in seen.targets

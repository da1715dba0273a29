"""The two endpoint files, in the order that costs no request. Envoy's side is proved in tests/envoy."""

import asyncio
import json
from pathlib import Path
from typing import Any

from pointsman.core.documents import read_yaml
from pointsman.local.envoys import Backend
from pointsman.local.plan import Service
from pointsman.local.publisher import Outlets, Publisher, hosts
from pointsman.local.replicas import PodMember
from pointsman.render.envoy.addresses import Address


def member(port: int, *, healthy: bool = True, leaving: bool = False) -> PodMember:
    here = Address("127.0.0.1", port)
    return PodMember(name=f"s{port}", address=here, ports={8200: here}, healthy=healthy, leaving=leaving)


class Scene:
    def __init__(self, path: Path) -> None:
        self.members: list[PodMember] = []
        self.pool, self.listing, self.service = path / "pool.json", path / "picker.yaml", path / "service.json"
        outlets = Outlets(
            services=[Service(name="front", selector={}, ports={80: 8200})],
            backends={Backend(service="front", port=80): self.service},
            pickers={self.listing: {}},
            pool=self.pool,
        )
        self.publisher = Publisher(members=lambda: self.members, outlets=lambda: outlets)

    async def after(self, *members: PodMember) -> tuple[list[int], list[int]]:
        """Return the ports that Envoy and the picker know, once the files are true."""
        self.members = list(members)
        await self.publisher.publish()
        return self.envoy(), self.picker()

    def envoy(self, path: Path | None = None) -> list[int]:
        (assignment,) = json.loads((path or self.pool).read_text())["resources"]
        rows: list[dict[str, Any]] = assignment["endpoints"][0]["lb_endpoints"]
        return [row["endpoint"]["address"]["socket_address"]["port_value"] for row in rows]

    def picker(self) -> list[int]:
        return [row["port"] for row in read_yaml(self.listing)["endpoints"]]


async def test_life_of_a_replica(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert await scene.after(member(1), member(2, healthy=False)) == ([1, 2], [1])
    assert await scene.after(member(1), member(2)) == ([1, 2], [1, 2])
    assert await scene.after(member(1, healthy=False), member(2)) == ([1, 2], [2])  # died
    assert await scene.after(member(1), member(2)) == ([1, 2], [1, 2])  # came back
    assert await scene.after(member(1), member(2, leaving=True)) == ([1, 2], [1])
    assert await scene.after(member(1)) == ([1], [1])


async def test_unchanged_files_are_not_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.after(member(1))
    before = [path.stat().st_ino for path in (scene.pool, scene.listing, scene.service)]
    await scene.after(member(1))
    after = [path.stat().st_ino for path in (scene.pool, scene.listing, scene.service)]
    assert after == before


async def test_service_leads_to_who_is_healthy_and_stays(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.after(member(1), member(2, healthy=False), member(3, leaving=True))
    assert scene.envoy(scene.service) == [1]


async def test_files_exist_even_when_nobody_is_there(tmp_path: Path) -> None:
    assert await Scene(tmp_path).after() == ([], [])


async def test_settled_waits_for_what_was_noticed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(scene.publisher.run())
        scene.members = [member(1)]
        scene.publisher.notice()
        await scene.publisher.settled()
        assert scene.picker() == [1]
        running.cancel()


def test_hosts_of_envoys_listing() -> None:
    listing = (
        "model-servers::127.0.0.1:8200::cx_active::0\n"
        "model-servers::127.0.0.1:8200::health_flags::healthy\n"
        "model-servers::[::1]:8201::health_flags::healthy\n"
        "model-servers::default_priority::max_connections::1024\n"
        "pickers::127.0.0.1:9002::health_flags::healthy\n"
    )
    assert hosts(listing) == {"127.0.0.1:8200", "[::1]:8201"}
    sick = listing.replace("[::1]:8201::health_flags::healthy", "[::1]:8201::health_flags::/failed_active_hc")
    assert hosts(sick, healthy=True) == {"127.0.0.1:8200"}
    assert hosts(sick, cluster="pickers", healthy=True) == {"127.0.0.1:9002"}

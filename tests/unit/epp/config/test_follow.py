"""A configuration that changes while it is used."""

import asyncio
import random
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.follow import ConfigFollower

HEAD = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
ONE = HEAD + "plugins: [{type: no-hit-lru-scorer}, {type: load-aware-scorer}]"
TWO = HEAD + "plugins: [{type: no-hit-lru-scorer}, {type: load-aware-scorer, parameters: {threshold: 5}}]"


def follow(tmp_path: Path, text: str = ONE) -> tuple[ConfigFollower, list[Built]]:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return ConfigFollower(builder=Builder(clock=lambda: 0.0, rng=random.Random(7)), path=path), []


def test_a_change_is_handed_over_and_what_did_not_change_keeps_its_state(tmp_path: Path) -> None:
    follower, used = follow(tmp_path)
    before = follower.current
    follower.take(TWO.encode(), use=used.append)
    (after,) = used
    assert follower.current is after
    same = {name for name in before.made if before.made[name].plugin is after.made[name].plugin}
    assert "no-hit-lru-scorer" in same
    assert "approx-prefix-cache-producer" in same, "the prefix index survives a reload"
    assert "load-aware-scorer" not in same
    assert (follower.reloads, follower.rejected) == (1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"plugins: [", id="not YAML"),
        pytest.param(HEAD.encode() + b"plugins: [{type: nonsense}]", id="unknown type"),
        pytest.param(None, id="gone"),
        pytest.param(b"", id="empty, as while somebody writes it"),
        pytest.param(b"\xff\xfe", id="not text"),
    ],
)
def test_a_wrong_version_is_counted_and_the_last_good_one_stays(tmp_path: Path, wrong: bytes | None) -> None:
    follower, used = follow(tmp_path)
    before = follower.current
    follower.take(wrong, use=used.append)
    assert follower.current is before and used == []
    assert (follower.reloads, follower.rejected) == (0, 1)
    follower.take(TWO.encode(), use=used.append)
    assert len(used) == 1, "and a good one after it is used"


def test_the_same_text_is_no_change(tmp_path: Path) -> None:
    follower, used = follow(tmp_path)
    follower.take(ONE.encode(), use=used.append)
    assert used == [] and follower.reloads == 0


def test_a_handler_is_made_anew_when_the_profiles_change(tmp_path: Path) -> None:
    follower, used = follow(tmp_path, HEAD + "schedulingProfiles: [{name: a, plugins: []}]")
    before = follower.current
    follower.take((HEAD + "schedulingProfiles: [{name: b, plugins: []}]").encode(), use=used.append)
    assert used[0].made["single-profile-handler"].plugin is not before.made["single-profile-handler"].plugin


def test_a_file_that_is_wrong_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nonsense"):
        follow(tmp_path, HEAD + "plugins: [{type: nonsense}]")
    with pytest.raises(UserError, match="cannot be read"):
        ConfigFollower(builder=Builder(clock=lambda: 0.0, rng=random.Random(7)), path=tmp_path / "none.yaml")


async def test_the_file_is_watched(tmp_path: Path) -> None:
    follower, used = follow(tmp_path)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follower.follow(used.append))
        await asyncio.sleep(0.1)
        (tmp_path / "config.yaml").write_text(TWO)
        async with asyncio.timeout(10):
            while not used:  # noqa: ASYNC110 - the follower has no event to wait for
                await asyncio.sleep(0.02)
        task.cancel()
    assert follower.reloads == 1

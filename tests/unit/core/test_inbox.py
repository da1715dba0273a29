"""Input takes turns with everything else, keeps its order, and survives a handler that fails."""

import asyncio
import contextlib
from functools import partial

from pointsman.core.inbox import SLICE, Inbox


class Machine:
    """A loop on which every handler takes a quarter of a slice."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.inbox = Inbox(clock=lambda: self.now)

    def handle(self, name: str) -> None:
        self.now += SLICE / 4
        self.log.append(name)
        if name == "bad":
            raise ValueError

    def offer(self, *names: str) -> None:
        """Offer input as an event loop does: all that is there, in one go."""
        for name in names:
            if self.inbox.open():
                self.handle(name)
            else:
                self.inbox.put(partial(self.handle, name))


async def test_a_burst_takes_several_rounds_and_keeps_its_order() -> None:
    machine = Machine()
    machine.offer(*"abcdefghij")
    machine.log.append("|")
    for _ in range(3):
        await asyncio.sleep(0)
        machine.log.append("|")
    assert "".join(machine.log) == "abcd|efgh|ij||"


async def test_what_comes_later_does_not_overtake_what_waits() -> None:
    machine = Machine()
    machine.offer(*"abcde")
    machine.now += SLICE
    machine.offer("f")
    assert "".join(machine.log) == "abcd"
    await asyncio.sleep(0)
    assert "".join(machine.log) == "abcdef"


async def test_a_handler_that_fails_holds_up_nobody() -> None:
    machine = Machine()
    machine.offer("a", "a", "a", "a", "bad", "z")
    with contextlib.suppress(ValueError):
        machine.inbox._next_round()
    for _ in range(3):
        await asyncio.sleep(0)
    assert machine.log[-1] == "z"
    machine.offer("next")
    assert machine.log[-1] == "next"


async def test_what_is_put_outside_a_round_has_its_turn_too() -> None:
    inbox, called = Inbox(), asyncio.Event()
    inbox.put(called.set)
    await asyncio.wait_for(called.wait(), timeout=5)

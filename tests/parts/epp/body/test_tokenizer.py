"""A tokenizer service on loopback with every bad habit: a request gets its tokens, or None in time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.parts.epp.service import HABITS, Service, serving

from pointsman.epp.body.prompts import token_bytes
from pointsman.epp.body.rendering import TokenQuestion
from pointsman.epp.body.tokenizer import Tokenizer
from pointsman.epp.request.request import Rendered, TokenService

GOOD = b'{"token_ids":[1,2,3]}'


class Stand:
    """A tokenizer and the service that it asks."""

    def __init__(self, tokenizer: Tokenizer, service: Service) -> None:
        self.tokenizer, self.service = tokenizer, service

    def question(self, *, seconds: float = 5.0) -> TokenQuestion:
        service = TokenService(host="127.0.0.1", port=self.service.port, model="m")
        return TokenQuestion(service=service, path="/v1/chat/completions/render", body=b'{"a":1}', seconds=seconds)

    async def ask(self, question: TokenQuestion | None = None) -> Rendered | None:
        found: asyncio.Future[Rendered | None] = asyncio.get_running_loop().create_future()
        self.tokenizer.ask(question or self.question(), found.set_result)
        return await found


@asynccontextmanager
async def standing() -> AsyncIterator[Stand]:
    tokenizer = Tokenizer()
    async with serving(lambda _question: GOOD) as service, asyncio.TaskGroup() as group:
        tokenizer.begin(group)
        yield Stand(tokenizer, service)


async def test_one_connection_serves_one_question_after_another() -> None:
    async with standing() as stand:
        for _ in range(3):
            assert await stand.ask() == Rendered(tokens=token_bytes([1, 2, 3]), items=[])
        assert stand.service.connections == 1
        assert stand.service.bodies == [b'{"a":1}'] * 3
        assert stand.service.heads[0].startswith(b"POST /v1/chat/completions/render HTTP/1.1\r\nhost: 127.0.0.1:")
        assert stand.tokenizer.results == {"answered": 3}


async def test_questions_do_not_wait_for_each_other() -> None:
    async with standing() as stand:
        stand.service.habit = "hang"
        hanging = [asyncio.ensure_future(stand.ask(stand.question(seconds=0.3))) for _ in range(5)]
        await asyncio.sleep(0.05)
        stand.service.habit = ""
        assert await asyncio.wait_for(stand.ask(), 0.2) is not None
        assert await asyncio.gather(*hanging) == [None] * 5


@pytest.mark.parametrize(("habit", "result"), HABITS.items())
async def test_a_bad_service_costs_the_tokens_only(habit: str, result: str) -> None:
    async with standing() as stand:
        stand.service.habit = habit
        assert await stand.ask(stand.question(seconds=0.2 if result == "timeout" else 30.0)) is None
        assert stand.tokenizer.results == {result: 1}
        stand.service.habit = ""
        assert await stand.ask() is not None, "and it may get better"


async def test_nobody_there() -> None:
    async with standing() as stand:
        stand.service.port = 1
        assert await stand.ask() is None
        assert stand.tokenizer.results == {"unreachable": 1}


async def test_a_connection_that_is_closed_when_it_is_used_again_is_replaced() -> None:
    async with standing() as stand:
        assert await stand.ask() is not None
        stand.service.habit = "hang up"
        asking = asyncio.ensure_future(stand.ask())
        await asyncio.wait_for(stand.service.heard.wait(), 5)
        stand.service.habit = ""
        assert await asking is not None
        assert stand.service.connections == 2


async def test_another_service_is_asked_on_another_connection() -> None:
    async with standing() as stand:
        await stand.ask()
        other = msgspec.structs.replace(stand.question().service, model="other")
        assert await stand.ask(msgspec.structs.replace(stand.question(), service=other)) is not None
        assert stand.service.connections == 2


async def test_what_was_forgotten_is_not_told() -> None:
    told: list[Rendered | None] = []
    async with standing() as stand:
        stand.service.habit = "hang"
        forget: Callable[[], None] = stand.tokenizer.ask(stand.question(seconds=0.1), told.append)
        await asyncio.sleep(0.02)
        forget()
    assert told == []

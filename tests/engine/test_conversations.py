"""A response reads its conversation as it is when the conversation becomes its own."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from antiphon.agents.demo import demo
from antiphon.core.errors import RequestError
from antiphon.core.items import user
from antiphon.core.request import ConversationParam, Request
from antiphon.engine.engine import WHOLE, Engine
from antiphon.engine.ids import identified
from antiphon.engine.models import Models
from antiphon.store.base import Claim, Conversation, Page
from antiphon.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

TALK = Conversation(id="conv_1", created_at=0, metadata={})
SAID = identified(user("Meanwhile."))
ASKED = Request.from_message("demo", "Hi!", conversation=ConversationParam(id="conv_1"))


class Overtaking(MemoryStore):
    """A store in which something else happens just before the first response begins."""

    def __init__(self, happens: Callable[[MemoryStore], Awaitable[object]]) -> None:
        super().__init__()
        self._happening = [happens]

    async def begin(self, *given: Any, **named: Any) -> Claim | None:
        while self._happening:
            await self._happening.pop()(self)
        return await super().begin(*given, **named)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("before", [[], [identified(user("Before."))]])
async def test_a_response_that_ends_in_between_makes_the_conversation_busy(
    background: bool, before: list[Any]
) -> None:
    store = Overtaking(lambda store: store.add_items("conv_1", [SAID]))
    await store.save_conversation(TALK)
    await store.add_items("conv_1", before)
    engine = Engine(Models([demo]), store=store)
    begin = engine.submit if background else engine.open
    with pytest.raises(RequestError) as refused:
        await begin(ASKED, key=("key", "print"))
    assert (refused.value.status, refused.value.payload.code) == (409, "conversation_busy")
    assert await store.unfinished() == []
    page = await store.list_items("conv_1", WHOLE)
    assert page == Page([*before, SAID], has_more=False)
    await begin(ASKED, key=("key", "print"))  # the conversation and the key are free again
    await engine.background.drain()


async def test_a_conversation_deleted_in_between_begins_nothing() -> None:
    store = Overtaking(lambda store: store.delete_conversation("conv_1"))
    await store.save_conversation(TALK)
    engine = Engine(Models([demo]), store=store)
    with pytest.raises(RequestError, match="Another response"):
        await engine.open(ASKED)
    assert await store.unfinished() == []
    with pytest.raises(RequestError, match="'conv_1' not found"):
        await engine.open(ASKED)


async def test_what_is_said_in_a_conversation_is_not_kept_at_hand() -> None:
    engine = Engine(Models([demo]))
    await engine.store.save_conversation(TALK)
    await (await engine.open(ASKED)).drive()
    assert len(engine.chain.recent) == 0

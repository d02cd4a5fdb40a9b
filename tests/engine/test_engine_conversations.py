"""Concurrent changes of a conversation, and agents that break in one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from antiphon.agents.demo import demo
from antiphon.engine.engine import ALL_ITEMS, Engine
from antiphon.engine.models import Models
from antiphon.engine.persistence import ensure_id
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import user_message
from antiphon.protocol.request import ConversationParam, Request
from antiphon.store.base import IdempotencyRecord, StoredConversation
from antiphon.store.memory import MemoryStore
from antiphon.store.pagination import ItemPage
from tests.engine.builders import make_engine, make_request, wait_for_end

pytestmark = pytest.mark.anyio

CONVERSATION = StoredConversation(id="conv_1", created_at=0, metadata={})
NEW_ITEM = ensure_id(user_message("Meanwhile."))
REQUEST = Request.from_message("demo", "Hi!", conversation=ConversationParam(id="conv_1"))


class OvertakingStore(MemoryStore):
    """A store in which something else happens just before the first response begins."""

    def __init__(self, happens: Callable[[MemoryStore], Awaitable[object]]) -> None:
        super().__init__()
        self._happening = [happens]

    async def begin(self, *given: Any, **named: Any) -> IdempotencyRecord | None:
        while self._happening:
            await self._happening.pop()(self)
        return await super().begin(*given, **named)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("before", [[], [ensure_id(user_message("Before."))]])
async def test_a_response_that_ends_meanwhile_makes_the_conversation_busy(background: bool, before: list[Any]) -> None:
    store = OvertakingStore(lambda store: store.add_items("conv_1", [NEW_ITEM]))
    await store.save_conversation(CONVERSATION)
    await store.add_items("conv_1", before)
    engine = Engine(Models([demo]), store=store)
    begin = engine.submit if background else engine.create_run
    with pytest.raises(RequestError) as refused:
        await begin(REQUEST, key=("key", "print"))
    assert (refused.value.status, refused.value.payload.code) == (409, "conversation_busy")
    assert await store.list_unfinished() == []
    page = await store.list_items("conv_1", ALL_ITEMS)
    assert page == ItemPage([*before, NEW_ITEM], has_more=False)
    await begin(REQUEST, key=("key", "print"))  # the conversation and the key are free again
    await engine.background.stop_all()


async def test_a_conversation_deleted_meanwhile_starts_no_response() -> None:
    store = OvertakingStore(lambda store: store.delete_conversation("conv_1"))
    await store.save_conversation(CONVERSATION)
    engine = Engine(Models([demo]), store=store)
    with pytest.raises(RequestError, match="Another response"):
        await engine.create_run(REQUEST)
    assert await store.list_unfinished() == []
    with pytest.raises(RequestError, match="'conv_1' not found"):
        await engine.create_run(REQUEST)


@pytest.mark.parametrize(
    "error", [SystemExit(), BaseExceptionGroup("x", [KeyboardInterrupt()]), GeneratorExit()], ids=type
)
@pytest.mark.parametrize("background", [False, True])
async def test_a_conversation_is_free_after_its_agent_raised_anything(error: BaseException, background: bool) -> None:
    async def broken() -> str:
        raise error

    engine = make_engine(broken)
    await engine.store.save_conversation(CONVERSATION)
    request = make_request(conversation=ConversationParam(id="conv_1"), background=background)
    for _ in range(2):
        if background:
            response = await wait_for_end(engine.store, (await engine.submit(request)).id)
        else:
            response = await (await engine.create_run(request)).execute()
        assert response.status == "failed"
    assert await engine.store.list_unfinished() == []


async def test_responses_in_a_conversation_are_not_cached() -> None:
    engine = Engine(Models([demo]))
    await engine.store.save_conversation(CONVERSATION)
    await (await engine.create_run(REQUEST)).execute()
    assert len(engine.history.cache) == 0

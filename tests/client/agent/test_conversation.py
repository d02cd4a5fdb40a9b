"""The lock of a conversation."""

import asyncio

import pytest

from antiphon.client.agent.conversation import Conversation, ConversationLock
from antiphon.protocol.errors import RequestError

pytestmark = pytest.mark.anyio


async def test_the_lock_is_acquired_in_order():
    floor, spoke = ConversationLock(), list[int]()

    async def speak(number: int) -> None:
        async with floor:
            spoke.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(speak(number) for number in range(5)))
    assert (spoke, floor.locked) == ([0, 1, 2, 3, 4], False)


@pytest.mark.parametrize("late", [False, True], ids=["before its turn", "as its turn comes"])
async def test_a_cancelled_waiter_does_not_block_the_lock(late: bool):
    floor = ConversationLock()

    async def speak() -> None:
        async with floor:
            pass

    async with floor:
        leaver, other = asyncio.create_task(speak()), asyncio.create_task(speak())
        await asyncio.sleep(0)
        if not late:
            leaver.cancel()
            await asyncio.wait([leaver])
    leaver.cancel()
    await asyncio.wait_for(other, 1)
    assert (leaver.cancelled(), floor.locked) == (True, False)


def test_an_item_that_is_not_valid_is_refused():
    with pytest.raises(RequestError, match=r"Invalid 'input\[0\]\.content': this field is required"):
        Conversation([{"type": "message", "role": "user"}])

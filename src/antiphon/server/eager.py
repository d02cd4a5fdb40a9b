"""Coroutines that are begun at once, without a task.

To send some bytes is a coroutine in ASGI, though it hardly ever waits. Begun by hand it is a plain
call; only if it does wait is the rest of it left for a task to await.
"""

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, cast


def begin(work: Awaitable[object]) -> Awaitable[None] | None:
    """Do work as far as it does not wait; return what is left of it, if anything is."""
    if not isinstance(work, Coroutine):
        return _whole(work)
    coroutine = cast("Coroutine[Any, Any, object]", work)
    try:
        waiting = coroutine.send(None)
    except StopIteration:
        return None
    return _rest(coroutine, waiting)


async def _whole(work: Awaitable[object]) -> None:
    await work


@types.coroutine
def _rest(work: Coroutine[Any, Any, object], waiting: object) -> Generator[Any, Any, None]:
    """Await what the work waits for in its stead, until it is done."""
    while True:
        try:
            value = yield waiting
        except BaseException as error:  # noqa: BLE001 - it is for the work to take
            step = work.throw
            given: Any = error
        else:
            step, given = work.send, value
        try:
            waiting = step(given)
        except StopIteration:
            return

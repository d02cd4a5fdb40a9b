"""Memory: the objects of a request are freed after its response, also if it failed.

`antiphon serve` freezes the garbage collector at start-up, and it runs by the number of objects,
not by their size: whatever only the collector could free may stay for hours.
"""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette

from antiphon.adapters.base import Provider
from antiphon.agents.agent import Turn, agent
from antiphon.server.app import create_app
from antiphon.server.asgi import AsgiApp, Message
from antiphon.server.settings import Settings
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio

USER = [{"role": "user", "content": "Hello"}]
HASHBROWN = {"operation": "generate", "model": "dead/x", "system": "", "messages": USER, "tools": []}
NOWHERE = "http://127.0.0.1:9/v1"


@agent("broken")
async def broken(turn: Turn) -> AsyncIterator[str]:
    """Begins to answer, and fails; its error and its frame refer to each other."""
    yield "So"
    stored = ValueError(turn.text)
    raise stored


def make_app(url: str = NOWHERE) -> Starlette:
    providers = [
        Provider(name="dead", adapter="openai", base_url=NOWHERE),
        Provider(name="scripted", adapter="openai", base_url=url),
    ]
    aliases = {"fallback": ["dead/x", "demo"]}
    settings = Settings(
        agents=[broken], providers=providers, aliases=aliases, responses_dir=None, retries=1, retry_seconds=0
    )
    return create_app(settings)


async def post(app: AsgiApp, path: str, body: object) -> int:
    """Make one request; return the status of its answer."""
    incoming: list[Message] = [{"type": "http.request", "body": json.dumps(body).encode()}]
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop() if incoming else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": ""}
    await app({**scope, "headers": headers, "server": ("127.0.0.1", 80)}, receive, send)
    return sent[0]["status"]


async def converse(app: AsgiApp, *texts: str) -> list[Any]:
    """Send messages on a WebSocket; return what is answered, when each has had an answer."""
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    incoming.put_nowait({"type": "websocket.connect"})
    for text in texts:
        incoming.put_nowait({"type": "websocket.receive", "text": text})
    received: list[Any] = []

    async def send(message: Message) -> None:
        if message["type"] == "websocket.send":
            received.append(json.loads(message["text"]))
            if sum(event["type"] in ENDS for event in received) == len(texts):
                incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    scope = {"type": "websocket", "path": "/v1/responses", "query_string": b"", "root_path": ""}
    whole = {**scope, "headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 80)}
    await app(whole, incoming.get, send)
    return received


ENDS = frozenset({"error", "response.failed", "response.completed"})


async def uncollected_objects(app: Starlette, work: Callable[[], Awaitable[None]]) -> list[object]:
    """Return what only the garbage collector could free, after some work is done twice.

    The first time may fill caches.
    """
    async with app.router.lifespan_context(app):
        always = asyncio.all_tasks()
        await work()
        await wait_for_tasks(always)
        gc.collect()
        gc.disable()
        # A thread of an earlier test may end only now: what it leaves is not of this work.
        older = {id(value) for value in gc.get_objects()}
        try:
            await work()
            await wait_for_tasks(always)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return [value for value in gc.garbage if id(value) not in older]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


async def wait_for_tasks(others: set[asyncio.Task[Any]]) -> None:
    """Return when there are no tasks but others."""
    while asyncio.all_tasks() - others:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/responses", {"model": "dead/x", "input": USER}, 502),
        ("/v1/responses", {"model": "dead/x", "input": USER, "stream": True}, 502),
        ("/v1/responses", {"model": "dead/x", "input": USER, "background": True}, 200),
        ("/v1/responses", {"model": "broken", "input": USER}, 500),
        ("/v1/responses", {"model": "broken", "input": USER, "stream": True}, 200),
        ("/v1/responses", {"model": "broken", "input": USER, "background": True}, 200),
        ("/v1/responses", {"model": "fallback", "input": USER}, 200),
        ("/v1/responses", {"model": "fallback", "input": USER, "stream": True}, 200),
        ("/v1/responses", {"model": "none", "input": USER}, 404),
        ("/v1/responses", {"model": "demo", "input": USER, "temperature": "hot"}, 400),
        ("/v1/responses", {"model": "demo", "input": USER, "stream": True}, 200),
        ("/v1/chat/completions", {"model": "dead/x", "messages": USER}, 502),
        ("/v1/responses/compact", {"model": "dead/x", "input": USER}, 502),
        ("/v1/nothing", {}, 404),
        ("/hashbrown/chat", HASHBROWN, 200),
    ],
)
async def test_a_request_leaves_nothing_to_the_garbage_collector(
    path: str, body: dict[str, object], status: int
) -> None:
    app = make_app()

    async def work() -> None:
        assert await post(app, path, body) == status

    assert await uncollected_objects(app, work) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        sse_answer(b"data: {"),
        sse_answer(b'data: {"choices": [{"delta": {"content": "So"}}]}\n\ndata: {'),
        ScriptedAnswer(b"<html>", 500, {"content-type": "text/html"}),
    ],
    ids=["unreadable", "cut", "error"],
)
async def test_a_broken_answer_leaves_nothing_to_the_garbage_collector(answer: ScriptedAnswer, stream: bool) -> None:
    with scripted_upstream(answer) as provider:
        app = make_app(provider.url)

        async def work() -> None:
            await post(app, "/v1/responses", {"model": "scripted/x", "input": "", "stream": stream})

        found = await uncollected_objects(app, work)
    # The test's own upstream, in threads of this process, may leave some.
    assert [one for one in found if "antiphon" in type(one).__module__] == []
    assert [one for one in found if isinstance(one, BaseException)] == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"type": "none"}',
        '{"type": "response.create", "model": "none", "input": "x"}',
        '{"type": "response.create", "model": "dead/x", "input": "x", "store": false}',
        '{"type": "response.create", "model": "broken", "input": "x", "store": false}',
        '{"type": "response.create", "model": "demo", "input": "x", "temperature": "hot"}',
    ],
)
async def test_a_refused_message_leaves_nothing_to_the_garbage_collector(text: str) -> None:
    app = make_app()

    async def work() -> None:
        # The second waits in its lane while the first is answered.
        await converse(app, text, text)

    assert await uncollected_objects(app, work) == []


async def test_a_refused_message_that_waits_for_its_lane_is_not_kept() -> None:
    release, waiting, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @agent("slow")
    async def slow() -> str:
        await release.wait()
        return "So"

    async def receive() -> Message:
        if messages:
            sent = {"type": "response.create", "model": "slow", "input": "x", "store": False} | messages.pop(0)
            return {"type": "websocket.receive", "text": json.dumps(sent)}
        waiting.set()
        await left.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Message) -> None:
        received.append(message)

    messages: list[dict[str, object]] = [{}, {}, {"instructions": "x" * 5_000_000, "background": True}]
    received: list[Message] = []
    app = create_app(Settings(agents=[slow], responses_dir=None))
    scope = {"type": "websocket", "path": "/v1/responses", "query_string": b"", "root_path": ""}
    tracemalloc.start()
    try:
        session = asyncio.create_task(app({**scope, "headers": [], "server": ("127.0.0.1", 80)}, receive, send))
        await waiting.wait()
        async with asyncio.timeout(20):  # the thread that parsed it lets go of it a moment later
            while tracemalloc.get_traced_memory()[0] > 2_000_000:
                await asyncio.sleep(0.01)
        release.set()
        while "Background" not in str(received[-1]):
            await asyncio.sleep(0.01)
    finally:
        tracemalloc.stop()
        left.set()
    await session

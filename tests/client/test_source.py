"""Streams over HTTP as they go wrong: cut, slow, illegal, in pieces, and left early."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.client.client import AsyncClient
from antiphon.client.source import MAX_WAITING
from antiphon.client.stream import Stream
from antiphon.core.errors import (
    RemoteProtocolError,
    UpstreamError,
)
from antiphon.core.events import Event, OutputTextDelta
from antiphon.core.fold import fold
from antiphon.core.parts import Text
from antiphon.transport.connection import Timeouts
from antiphon.transport.retry import Patience
from tests.asking import WAIT
from tests.client.asking import SAID, Asking, framed
from tests.core.making import begun, stream
from tests.core.test_rules import LEGAL, PAINS, WAYS
from tests.upstream import Answer, sse, upstream, whole

pytestmark = pytest.mark.anyio

BACKGROUND = stream(Text("One"), Text(" two"), Text(" three"), response=begun(background=True))


async def eventually(happened: Any) -> None:
    """Wait until something has happened, and let it."""
    async with asyncio.timeout(WAIT):
        while not happened():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow a lost connection without a pause."""
    monkeypatch.setattr("antiphon.client.source.FOLLOWING", Patience(retries=2, first=0.01))


# --- legal and illegal ---


@pytest.mark.parametrize("pieces", [0, 1, 7, 1000])
@pytest.mark.parametrize("strict", [False, True])
async def test_however_it_is_cut_into_pieces_it_is_the_same(
    asking: Asking, pieces: int, strict: bool
):
    with upstream(sse(framed(LEGAL), pieces=pieces)) as server:
        async with asking(server, strict=strict).stream(**SAID) as told:
            assert [event async for event in told] == LEGAL
            assert told.response == fold(LEGAL)
    (request,) = server.requests
    assert request.json == {"model": "m", "input": "Hi!", "stream": True}
    assert (request.path, request.headers["accept"]) == ("/v1/responses", "text/event-stream")


@pytest.mark.parametrize("rule", WAYS)
async def test_strictly_an_illegal_stream_is_raised_after_what_was_legal(asking: Asking, rule: str):
    heard: list[str] = []

    async def listen(told: Stream) -> None:
        async for event in told:
            heard.append(event.type)  # noqa: PERF401 - what came before the error counts

    with upstream(sse(framed(WAYS[rule]))) as server:
        told = asking(server, strict=True).stream(**SAID)
        with pytest.raises(RemoteProtocolError, match=rf"\[{rule}\]$"):
            await listen(told)
    assert heard == [event["type"] for event in WAYS[rule]][: len(heard)]


@pytest.mark.parametrize("rule", WAYS)
async def test_otherwise_an_illegal_stream_ends_well(asking: Asking, rule: str):
    with upstream(sse(framed(WAYS[rule]))) as server:
        final = await asking(server).stream(**SAID).final()
    assert final.id in ("resp_0", "resp_9")
    assert final.status in ("completed", "failed", "incomplete")


async def test_a_stream_without_done_ends_with_its_response(asking: Asking):
    with upstream(sse(framed(LEGAL, done=False), cut=True)) as server:
        for strict in (False, True):
            client = asking(server, strict=strict)
            assert await client.stream(**SAID).final() == fold(LEGAL)


async def test_nobody_waits_for_the_end_of_a_stream_that_has_ended(asking: Asking):
    with upstream(
        sse(framed(LEGAL, done=False) + b": \n\n" * 50, pieces=3000, pause=0.5)
    ) as server:
        async with asyncio.timeout(WAIT):
            assert await asking(server).stream(**SAID).final() == fold(LEGAL)


async def test_a_whole_response_is_a_stream_of_one_event(asking: Asking):
    with upstream(whole({"id": "resp_0", "model": "m", "created_at": 3, "output": []})) as server:
        (event,) = [event async for event in asking(server).stream(**SAID)]
        assert event.type == "response.completed"
        with pytest.raises(RemoteProtocolError, match="no stream of events"):
            await asking(server, strict=True).stream(**SAID).final()


# --- cut ---


@pytest.mark.parametrize("strict", [False, True])
async def test_a_stream_that_is_cut_is_raised_and_its_snapshot_stays(asking: Asking, strict: bool):
    with upstream(sse(framed(LEGAL[:-1], done=False), cut=True)) as server:
        told = asking(server, strict=strict).stream(**SAID)
        with pytest.raises(UpstreamError) as caught:
            await told.final()
    assert (caught.value.status, caught.value.payload.code) == (502, "upstream_cut")
    assert caught.value.retryable
    assert told.response.output == fold(LEGAL).output
    assert len(server.requests) == 1


async def test_a_stream_that_just_stops_is_cut_too(asking: Asking):
    spoilt, _ = PAINS["a stream that just stops"]
    with upstream(sse(framed(spoilt))) as server:
        with pytest.raises(UpstreamError, match="ended before the response did"):
            await asking(server).stream(**SAID).final()
        with pytest.raises(RemoteProtocolError, match=r"\[response-order\]"):
            await asking(server, strict=True).stream(**SAID).final()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("repeats", [False, True])
async def test_a_background_response_is_followed_on(asking: Asking, strict: bool, repeats: bool):
    first, second = 4, 7

    def after(number):
        return 0 if repeats else number + 1

    answers = [
        sse(framed(BACKGROUND[:first], done=False), cut=True),
        Answer(status=503),
        sse(framed(BACKGROUND[after(first - 1) : second], done=False)),
        sse(framed(BACKGROUND[after(second - 1) :])),
    ]
    with upstream(*answers) as server:
        told = asking(server, strict=strict).stream(**SAID, background=True)
        assert [event async for event in told] == BACKGROUND
    assert told.response == fold(BACKGROUND)
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/v1/responses"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={first - 1}"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={first - 1}"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={second - 1}"),
    ]


async def test_a_frame_that_was_cut_in_two_is_not_told_twice(asking: Asking):
    body = framed(BACKGROUND[:6], done=False)[:-30]
    with upstream(sse(body, cut=True), sse(framed(BACKGROUND[5:]))) as server:
        heard = [event async for event in asking(server).stream(**SAID, background=True)]
    assert heard == BACKGROUND


async def test_following_ends_when_nothing_new_comes(asking: Asking):
    with upstream(sse(framed(BACKGROUND[:4], done=False), cut=True), sse(b"", cut=True)) as server:
        told = asking(server).stream(**SAID, background=True)
        with pytest.raises(UpstreamError) as caught:
            await told.final()
    assert caught.value.payload.code == "upstream_cut"
    assert len(server.requests) == 3
    assert told.response.background


async def test_what_the_server_refuses_ends_the_following(asking: Asking):
    gone = whole({"error": {"type": "not_found", "code": "response_not_found"}}, 404)
    with upstream(sse(framed(BACKGROUND[:4], done=False), cut=True), gone) as server:
        told = asking(server).stream(**SAID, background=True)
        with pytest.raises(UpstreamError) as caught:
            await told.final()
    assert (caught.value.status, len(server.requests)) == (404, 2)


async def test_a_resumed_stream_is_followed_on_too(asking: Asking):
    with upstream(
        sse(framed(BACKGROUND[3:6], done=False), cut=True), sse(framed(BACKGROUND[6:]))
    ) as server:
        heard = [e async for e in asking(server).resume("resp_0", starting_after=2)]
    assert heard == BACKGROUND[3:]
    assert [request.path.rpartition("=")[2] for request in server.requests] == ["2", "5"]


async def test_a_server_that_says_nothing_is_late(asking: Asking):
    with upstream(Answer(late=WAIT)) as server:
        with pytest.raises(UpstreamError) as caught:
            await asking(server, timeout=0.1).create(**SAID)
        assert (caught.value.status, caught.value.payload.code) == (504, "timeout")
    with upstream(sse(framed(LEGAL), pieces=500, pause=2)) as server:
        patience = Timeouts(idle=0.1)
        with pytest.raises(UpstreamError) as caught:
            await asking(server, timeout=patience).stream(**SAID).final()
        assert caught.value.status == 504


async def test_following_has_its_own_patience_alone(asking: Asking):
    begun = sse(framed(BACKGROUND[:4], done=False), cut=True)
    with upstream(begun, Answer(late=WAIT)) as server:
        told = asking(server, timeout=0.1, retries=2).stream(**SAID, background=True)
        with pytest.raises(UpstreamError, match="said nothing"):
            await told.final()
    assert len(server.requests) == 1 + 2


# --- left early, and read slowly ---

WORD = next(at for at, event in enumerate(LEGAL) if isinstance(event, OutputTextDelta))
TALK = framed(LEGAL[: WORD + 1], done=False)
ENDLESS = sse(TALK + framed([LEGAL[WORD]], done=False) * 2000, pieces=1000, pause=0.01)


async def leave_with(client: AsyncClient) -> None:
    async with client.stream(**SAID) as told:
        async for _ in told:
            break


async def leave_without(client: AsyncClient) -> None:
    async for _ in client.stream(**SAID):
        break


async def leave_the_text(client: AsyncClient) -> None:
    async for _ in client.stream(**SAID).text:
        break


async def be_cancelled(client: AsyncClient) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.stream(**SAID).final()


@pytest.mark.parametrize("leave", [leave_with, leave_without, leave_the_text, be_cancelled])
async def test_leaving_early_closes_the_connection_at_once(asking: Asking, leave: Any):
    with upstream(ENDLESS) as server:
        await leave(asking(server))
        await eventually(lambda: server.departures)


async def test_after_leaving_a_loop_inside_the_stream_the_rest_can_be_read(asking: Asking):
    with upstream(sse(framed(LEGAL))) as server:
        async with asking(server).stream(**SAID) as told:
            heard: list[Event] = []
            async for event in told:
                heard.append(event)
                if isinstance(event, OutputTextDelta):
                    break
            assert heard + [event async for event in told] == LEGAL
            assert await told.final() == fold(LEGAL)


@asynccontextmanager
async def flooding(sent: list[int]) -> AsyncIterator[str]:
    """Run a server that says as much as it is let, and counts."""
    frame = framed([LEGAL[WORD]], done=False) * 40

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + TALK)
        try:
            while True:
                writer.write(frame)
                await writer.drain()
                sent[0] += len(frame)
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(flood, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_a_slow_reader_slows_down_the_server():
    sent = [0]
    async with flooding(sent) as url, AsyncClient(url) as client, client.stream(**SAID) as told:
        batches = told.batches()
        await anext(batches)
        await asyncio.sleep(0.3)
        before = sent[0]
        await asyncio.sleep(0.3)
        assert sent[0] == before, "the server is still being read"
        async with asyncio.timeout(WAIT):
            while sent[0] == before:
                assert len(framed(await anext(batches), done=False)) < 4 * MAX_WAITING


async def test_connections_are_used_again(asking: Asking):
    with upstream(sse(framed(LEGAL))) as server:
        async with asking(server) as client:
            for _ in range(3):
                assert await client.stream(**SAID).final() == fold(LEGAL)
                await asyncio.sleep(0.05)
    assert server.connections == 1


async def test_another_transport_may_carry_the_requests(asking: Asking):
    from antiphon.transport.http import Client as HttpClient

    class Counting(HttpClient):
        opened = 0

        async def open(self, request: Any) -> Any:
            self.opened += 1
            return await super().open(request)

    transport = Counting()
    with upstream(whole({"id": "resp_0", "output": []})) as server:
        await asking(server, transport=transport).create(**SAID)
    transport.close()
    assert transport.opened == 1


def test_a_client_may_be_used_in_one_loop_after_another():
    once = Answer(b'{"id":"resp_0"}', headers={"connection": "close"})
    with upstream(once) as server:
        client = AsyncClient(server.url)
        for _ in range(2):
            assert asyncio.run(client.create(**SAID)).id == "resp_0"


async def test_closing_a_client_ends_what_is_being_read(asking: Asking):
    with upstream(ENDLESS) as server:
        client = asking(server)
        async with client.stream(**SAID) as told:
            await told.batch()
            await client.close()
            with pytest.raises(UpstreamError, match="the client was closed"):
                await told.final()
        await eventually(lambda: server.departures)

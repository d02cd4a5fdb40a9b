"""Streams over HTTP: cut, slow, invalid, in any chunking, and closed early."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.client.async_client import AsyncClient
from antiphon.client.http import MAX_BUFFERED_BYTES
from antiphon.client.stream import Stream
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.fold import fold
from antiphon.protocol.parts import Text
from antiphon.transport.connection import Timeouts
from antiphon.transport.retry import RetryPolicy
from tests.client.client_factory import REQUEST, ClientFactory, encode_sse
from tests.http_client import WAIT
from tests.protocol.broken_streams import KNOWN_MISTAKES, LEGAL, RULE_BREAKS
from tests.protocol.builders import make_response, synthesize
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio

BACKGROUND = synthesize(Text("One"), Text(" two"), Text(" three"), response=make_response(background=True))


async def wait_for(happened: Any) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT):
        while not happened():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def reconnect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect without a delay."""
    monkeypatch.setattr("antiphon.client.http.RECONNECT_POLICY", RetryPolicy(retries=2, first_delay=0.01))


@pytest.mark.parametrize("pieces", [0, 1, 7, 1000])
@pytest.mark.parametrize("strict", [False, True])
async def test_the_chunking_of_the_bytes_does_not_matter(make_client: ClientFactory, pieces: int, strict: bool):
    with scripted_upstream(sse_answer(encode_sse(LEGAL), chunk_size=pieces)) as server:
        async with make_client(server, strict=strict).stream(**REQUEST) as open_stream:
            assert [event async for event in open_stream] == LEGAL
            assert open_stream.response == fold(LEGAL)
    (request,) = server.requests
    assert request.json == {"model": "m", "input": "Hi!", "stream": True}
    assert (request.path, request.headers["accept"]) == ("/v1/responses", "text/event-stream")


@pytest.mark.parametrize("rule", RULE_BREAKS)
async def test_strict_mode_raises_after_the_valid_events(make_client: ClientFactory, rule: str):
    received: list[str] = []

    async def listen(open_stream: Stream) -> None:
        async for event in open_stream:
            received.append(event.type)  # noqa: PERF401 - what came before the error counts

    with scripted_upstream(sse_answer(encode_sse(RULE_BREAKS[rule]))) as server:
        open_stream = make_client(server, strict=True).stream(**REQUEST)
        with pytest.raises(RemoteProtocolError, match=rf"\[{rule}\]$"):
            await listen(open_stream)
    assert received == [event["type"] for event in RULE_BREAKS[rule]][: len(received)]


@pytest.mark.parametrize("rule", RULE_BREAKS)
async def test_an_invalid_stream_is_repaired_by_default(make_client: ClientFactory, rule: str):
    with scripted_upstream(sse_answer(encode_sse(RULE_BREAKS[rule]))) as server:
        final = await make_client(server).stream(**REQUEST).final()
    assert final.id in ("resp_0", "resp_9")
    assert final.status in ("completed", "failed", "incomplete")


async def test_a_stream_without_done_ends_with_its_response(make_client: ClientFactory):
    with scripted_upstream(sse_answer(encode_sse(LEGAL, done=False), cut=True)) as server:
        for strict in (False, True):
            client = make_client(server, strict=strict)
            assert await client.stream(**REQUEST).final() == fold(LEGAL)


async def test_a_stream_ends_with_its_last_event_even_if_the_connection_stays_open(make_client: ClientFactory):
    with scripted_upstream(
        sse_answer(encode_sse(LEGAL, done=False) + b": \n\n" * 50, chunk_size=3000, pause=0.5)
    ) as server:
        async with asyncio.timeout(WAIT):
            assert await make_client(server).stream(**REQUEST).final() == fold(LEGAL)


async def test_a_json_response_becomes_a_stream_of_one_event(make_client: ClientFactory):
    with scripted_upstream(json_answer({"id": "resp_0", "model": "m", "created_at": 3, "output": []})) as server:
        (event,) = [event async for event in make_client(server).stream(**REQUEST)]
        assert event.type == "response.completed"
        with pytest.raises(RemoteProtocolError, match="not an event stream"):
            await make_client(server, strict=True).stream(**REQUEST).final()


@pytest.mark.parametrize("strict", [False, True])
async def test_a_cut_stream_raises_and_its_snapshot_stays(make_client: ClientFactory, strict: bool):
    with scripted_upstream(sse_answer(encode_sse(LEGAL[:-1], done=False), cut=True)) as server:
        open_stream = make_client(server, strict=strict).stream(**REQUEST)
        with pytest.raises(UpstreamError) as caught:
            await open_stream.final()
    assert (caught.value.status, caught.value.payload.code) == (502, "upstream_cut")
    assert caught.value.retryable
    assert open_stream.response.output == fold(LEGAL).output
    assert len(server.requests) == 1


async def test_a_stream_without_a_terminal_event_is_cut(make_client: ClientFactory):
    spoilt, _ = KNOWN_MISTAKES["a stream that just stops"]
    with scripted_upstream(sse_answer(encode_sse(spoilt))) as server:
        with pytest.raises(UpstreamError, match="ended before the response did"):
            await make_client(server).stream(**REQUEST).final()
        with pytest.raises(RemoteProtocolError, match=r"\[response-order\]"):
            await make_client(server, strict=True).stream(**REQUEST).final()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("repeats", [False, True])
async def test_a_background_response_is_resumed_after_a_cut(make_client: ClientFactory, strict: bool, repeats: bool):
    first, second = 4, 7

    def after(number):
        return 0 if repeats else number + 1

    answers = [
        sse_answer(encode_sse(BACKGROUND[:first], done=False), cut=True),
        ScriptedAnswer(status=503),
        sse_answer(encode_sse(BACKGROUND[after(first - 1) : second], done=False)),
        sse_answer(encode_sse(BACKGROUND[after(second - 1) :])),
    ]
    with scripted_upstream(*answers) as server:
        open_stream = make_client(server, strict=strict).stream(**REQUEST, background=True)
        assert [event async for event in open_stream] == BACKGROUND
    assert open_stream.response == fold(BACKGROUND)
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/v1/responses"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={first - 1}"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={first - 1}"),
        ("GET", f"/v1/responses/resp_0?stream=true&starting_after={second - 1}"),
    ]


async def test_a_frame_split_by_a_cut_is_delivered_once(make_client: ClientFactory):
    body = encode_sse(BACKGROUND[:6], done=False)[:-30]
    with scripted_upstream(sse_answer(body, cut=True), sse_answer(encode_sse(BACKGROUND[5:]))) as server:
        received = [event async for event in make_client(server).stream(**REQUEST, background=True)]
    assert received == BACKGROUND


async def test_reconnecting_stops_without_new_events(make_client: ClientFactory):
    with scripted_upstream(
        sse_answer(encode_sse(BACKGROUND[:4], done=False), cut=True), sse_answer(b"", cut=True)
    ) as server:
        open_stream = make_client(server).stream(**REQUEST, background=True)
        with pytest.raises(UpstreamError) as caught:
            await open_stream.final()
    assert caught.value.payload.code == "upstream_cut"
    assert len(server.requests) == 3
    assert open_stream.response.background


async def test_an_error_status_ends_reconnecting(make_client: ClientFactory):
    gone = json_answer({"error": {"type": "not_found", "code": "response_not_found"}}, 404)
    with scripted_upstream(sse_answer(encode_sse(BACKGROUND[:4], done=False), cut=True), gone) as server:
        open_stream = make_client(server).stream(**REQUEST, background=True)
        with pytest.raises(UpstreamError) as caught:
            await open_stream.final()
    assert (caught.value.status, len(server.requests)) == (404, 2)


async def test_a_resumed_stream_reconnects_too(make_client: ClientFactory):
    with scripted_upstream(
        sse_answer(encode_sse(BACKGROUND[3:6], done=False), cut=True), sse_answer(encode_sse(BACKGROUND[6:]))
    ) as server:
        received = [e async for e in make_client(server).resume("resp_0", starting_after=2)]
    assert received == BACKGROUND[3:]
    assert [request.path.rpartition("=")[2] for request in server.requests] == ["2", "5"]


async def test_a_silent_server_times_out(make_client: ClientFactory):
    with scripted_upstream(ScriptedAnswer(delay=WAIT)) as server:
        with pytest.raises(UpstreamError) as caught:
            await make_client(server, timeout=Timeouts(first_byte=0.1)).create(**REQUEST)
        assert (caught.value.status, caught.value.payload.code) == (504, "timeout")
    with scripted_upstream(sse_answer(encode_sse(LEGAL), chunk_size=500, pause=2)) as server:
        patience = Timeouts(idle=0.1)
        with pytest.raises(UpstreamError) as caught:
            await make_client(server, timeout=patience).stream(**REQUEST).final()
        assert caught.value.status == 504


async def test_reconnecting_uses_its_own_retries_only(make_client: ClientFactory):
    started = sse_answer(encode_sse(BACKGROUND[:4], done=False), cut=True)
    with scripted_upstream(started, ScriptedAnswer(delay=WAIT)) as server:
        open_stream = make_client(server, timeout=1, retries=2).stream(**REQUEST, background=True)
        with pytest.raises(UpstreamError, match="sent nothing"):
            await open_stream.final()
    assert len(server.requests) == 1 + 2


WORD = next(at for at, event in enumerate(LEGAL) if isinstance(event, OutputTextDelta))
TALK = encode_sse(LEGAL[: WORD + 1], done=False)
ENDLESS_STREAM = sse_answer(TALK + encode_sse([LEGAL[WORD]], done=False) * 2000, chunk_size=1000, pause=0.01)


async def leave_with(client: AsyncClient) -> None:
    async with client.stream(**REQUEST) as open_stream:
        async for _ in open_stream:
            break


async def leave_without(client: AsyncClient) -> None:
    async for _ in client.stream(**REQUEST):
        break


async def leave_the_text(client: AsyncClient) -> None:
    async for _ in client.stream(**REQUEST).text:
        break


async def be_cancelled(client: AsyncClient) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.stream(**REQUEST).final()


@pytest.mark.parametrize("leave", [leave_with, leave_without, leave_the_text, be_cancelled])
async def test_leaving_early_closes_the_connection_at_once(make_client: ClientFactory, leave: Any):
    with scripted_upstream(ENDLESS_STREAM) as server:
        await leave(make_client(server))
        await wait_for(lambda: server.disconnects)


async def test_inside_with_a_loop_can_be_left_and_continued(make_client: ClientFactory):
    with scripted_upstream(sse_answer(encode_sse(LEGAL))) as server:
        async with make_client(server).stream(**REQUEST) as open_stream:
            received: list[Event] = []
            async for event in open_stream:
                received.append(event)
                if isinstance(event, OutputTextDelta):
                    break
            assert received + [event async for event in open_stream] == LEGAL
            assert await open_stream.final() == fold(LEGAL)


@asynccontextmanager
async def serve_endlessly(sent: list[int]) -> AsyncIterator[str]:
    """Run a server that sends as much as the client accepts, and counts it."""
    frame = encode_sse([LEGAL[WORD]], done=False) * 40

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
    async with serve_endlessly(sent) as url, AsyncClient(url) as client, client.stream(**REQUEST) as open_stream:
        batches = open_stream.batches()
        await anext(batches)
        await asyncio.sleep(0.3)
        before = sent[0]
        await asyncio.sleep(0.3)
        assert sent[0] == before, "the server is still being read"
        async with asyncio.timeout(WAIT):
            while sent[0] == before:
                assert len(encode_sse(await anext(batches), done=False)) < 4 * MAX_BUFFERED_BYTES


async def test_connections_are_reused(make_client: ClientFactory):
    with scripted_upstream(sse_answer(encode_sse(LEGAL))) as server:
        async with make_client(server) as client:
            for _ in range(3):
                assert await client.stream(**REQUEST).final() == fold(LEGAL)
                await asyncio.sleep(0.05)
    assert server.connections == 1


async def test_a_custom_transport_sends_the_requests(make_client: ClientFactory):
    from antiphon.transport.client import HttpClient as HttpClient

    class Counting(HttpClient):
        opened = 0

        async def open(self, request: Any) -> Any:
            self.opened += 1
            return await super().open(request)

    transport = Counting()
    with scripted_upstream(json_answer({"id": "resp_0", "output": []})) as server:
        await make_client(server, transport=transport).create(**REQUEST)
    transport.close()
    assert transport.opened == 1


def test_a_client_works_in_several_event_loops():
    once = ScriptedAnswer(b'{"id":"resp_0"}', headers={"connection": "close"})
    with scripted_upstream(once) as server:
        client = AsyncClient(server.url)
        for _ in range(2):
            assert asyncio.run(client.create(**REQUEST)).id == "resp_0"


async def test_closing_a_client_fails_its_open_streams(make_client: ClientFactory):
    with scripted_upstream(ENDLESS_STREAM) as server:
        client = make_client(server)
        async with client.stream(**REQUEST) as open_stream:
            await open_stream.next_batch()
            await client.close()
            with pytest.raises(UpstreamError, match="the client was closed"):
                await open_stream.final()
        await wait_for(lambda: server.disconnects)

"""How sessions over WebSocket end: by us, by the server, by its silence."""

import asyncio
from collections.abc import Iterator

import pytest

from antiphon.client import socket as sessions
from antiphon.client.socket import Session
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.server.settings import Settings
from antiphon.transport.connection import Timeouts
from tests.client.scripted import ServerSide, created, delta, error, serve_websocket, text_of, status_and_code
from tests.server.gating import GatedModel
from tests.serving import run_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def gated(gate: GatedModel) -> Iterator[str]:
    with run_server(Settings(agents=[gate.agent])) as address:
        yield f"{address}/v1/responses"


async def wait_until_closed(session: Session) -> None:
    """Wait until a session has come to its end."""
    async with asyncio.timeout(5):
        while not session.closed:
            await asyncio.sleep(0.005)


async def test_closing_wakes_everyone_who_waits(gated: str, gate: GatedModel) -> None:
    before = asyncio.all_tasks()
    session = Session(gated)
    await session.open()
    await session.open()  # it is open already
    waiting = [
        asyncio.create_task(session.stream(lane=lane, model="gate", input="?").final())
        for lane in ("a", "b", "b", "")
    ]
    async with asyncio.timeout(5):
        while gate.running < 3:
            await asyncio.sleep(0.005)
    await session.close()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [status_and_code(error) for error in errors if isinstance(error, UpstreamError)] == [
        (502, "websocket_closed")
    ] * 4
    assert session.closed
    assert asyncio.all_tasks() == before
    for use in (session.open, session.stream(model="gate").final):
        with pytest.raises(UpstreamError, match="this side closed it") as closed:
            await use()
        assert closed.value.retryable
    await session.close()


async def test_a_session_must_be_opened_first() -> None:
    session = Session("http://127.0.0.1:1/v1/responses")
    with pytest.raises(RequestError, match="not open"):
        await session.stream(model="demo").final()
    await session.close()


async def test_a_socket_that_closes_in_mid_turn_fails_every_lane() -> None:
    async def meet(visitor: ServerSide) -> None:
        for lane in ("a", "b"):
            await visitor.receive()
            await visitor.send(created(f"resp_{lane}"), delta("so far"), lane=lane)
        await visitor.socket.close(1011, "sk-secretsecret is bad")

    async with serve_websocket(meet) as url, Session(url) as session:
        streams = [session.stream(lane=lane, model="m") for lane in ("a", "b")]
        finals = await asyncio.gather(*(s.final() for s in streams), return_exceptions=True)
        for stream, failed in zip(streams, finals, strict=True):
            assert isinstance(failed, UpstreamError)
            assert status_and_code(failed) == (502, "websocket_closed")
            assert str(failed) == "The WebSocket is closed: 1011 [redacted] is bad"
            assert failed.retryable
            assert text_of(stream.response) == "so far"
        assert session.closed


async def test_a_connection_that_is_lost_says_so() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        visitor.socket.transport.abort()

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError, match="the connection was lost"):
            await session.stream(model="m").final()


async def test_the_limit_of_a_connection_keeps_its_code_for_all() -> None:
    code = "websocket_connection_limit_reached"

    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created(), lane="a")
        await visitor.send(error(code))
        await visitor.socket.close(1001)

    async with serve_websocket(meet) as url, Session(url) as session:
        for _ in range(2):
            with pytest.raises(UpstreamError) as over:
                await session.stream(lane="a", model="m").final()
            assert status_and_code(over.value) == (400, code)


async def test_the_limit_of_our_own_server_ends_a_session() -> None:
    with run_server(Settings(socket_seconds=0.3)) as address:
        async with Session(f"{address}/v1/responses") as session:
            await session.stream(model="demo", input="Hi!").final()
            await wait_until_closed(session)
            with pytest.raises(UpstreamError) as over:
                await session.stream(model="demo").final()
            assert status_and_code(over.value) == (400, "websocket_connection_limit_reached")


async def test_a_message_that_is_too_large_closes_the_socket() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(delta("x" * (20 * 1024 * 1024)))
        await visitor.send(delta("x" * (33 * 1024 * 1024)))

    async with serve_websocket(meet) as url, Session(url) as session, session.stream(model="m") as stream:
        with pytest.raises(UpstreamError, match="more than 33554432 bytes") as closed:
            await stream.final()
        assert status_and_code(closed.value) == (502, "websocket_closed")
        assert len(text_of(stream.response)) == 20 * 1024 * 1024


async def test_a_server_that_answers_no_ping_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PING_SECONDS", 0.05)

    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await asyncio.sleep(0.3)  # pings are answered meanwhile
        visitor.socket.transport.pause_reading()
        await asyncio.sleep(0.5)

    async with serve_websocket(meet, close_timeout=0.1) as url, Session(url) as session:
        async with asyncio.timeout(2):
            with pytest.raises(UpstreamError, match="answers no ping") as gone:
                await session.stream(model="m").final()
        assert status_and_code(gone.value) == (502, "websocket_closed")


async def test_silence_has_its_limits() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created())
        await visitor.receive()

    patience = Timeouts(first_byte=5, idle=0.1)
    async with serve_websocket(meet) as url, Session(url, timeout=patience) as session:
        with pytest.raises(UpstreamError, match=r"sent nothing for 0\.1 seconds") as late:
            await session.stream(model="m").final()
        assert status_and_code(late.value) == (504, "timeout")
        with pytest.raises(UpstreamError, match="did not end the turn before"):
            await session.stream(model="m").final()
        assert not session.closed

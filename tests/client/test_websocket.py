"""Sessions over WebSocket, against our own server and against scripted ones."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client import websocket as sessions
from antiphon.client.errors import websocket_message_error
from antiphon.client.websocket import MessageLabel, Session, decode_label, decode_response_id, encode_create
from antiphon.protocol.errors import RemoteProtocolError, RequestError, UpstreamError
from antiphon.protocol.events import ExtensionEvent, OutputTextDelta, ReasoningDelta, ResponseCreated
from antiphon.protocol.items import user_message
from antiphon.server.settings import Settings
from antiphon.transport.connection import Timeouts
from tests.client.websocket_server import (
    ServerSide,
    created,
    delta,
    error,
    serve_websocket,
    status_and_code,
    terminal,
    text_of,
    turn_messages,
)
from tests.run_server import run_server
from tests.server.gated_model import GatedModel

pytestmark = pytest.mark.anyio

HELLO = "Hello from Antiphon's demo model. You said: "


@pytest.fixture
async def session(server: str) -> AsyncIterator[Session]:
    async with Session(f"{server}/v1/responses") as session:
        yield session


@pytest.fixture
def gated(gate: GatedModel) -> Iterator[str]:
    with run_server(Settings(agents=[gate.agent])) as address:
        yield f"{address}/v1/responses"


@pytest.mark.parametrize("door", ["/v1", "/openai/v1"])
async def test_a_turn_is_a_stream(server: str, door: str) -> None:
    async with (
        Session(f"{server}{door}/responses", strict=door == "/v1") as session,
        session.stream(model="demo", input="Hi!") as stream,
    ):
        events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert isinstance(events[0], ResponseCreated)
        pieces = [event.delta for event in events if isinstance(event, OutputTextDelta)]
        assert "".join(pieces) == text_of(stream.response) == f"{HELLO}Hi!"
        assert stream.response.status == "completed"


async def test_turns_continue_responses_that_are_not_stored(session: Session) -> None:
    first = await session.stream(model="demo", input="I am Ada.", store=False).final()
    second = session.stream(model="demo", input=[user_message("Who am I?")], store=False, previous_response_id=first.id)
    answer = "".join([text async for text in second.text])
    assert answer == f"{HELLO}Who am I? This conversation has 3 messages."


async def test_a_response_without_generation_can_be_continued(session: Session) -> None:
    warm = await session.stream(model="demo", input="A.", store=False, generate=False).final()
    assert warm.output == []
    last = session.stream(model="demo", input="B.", store=False, previous_response_id=warm.id)
    assert text_of(await last.final()) == f"{HELLO}B. This conversation has 2 messages."


async def test_a_failed_turn_is_delivered_completely(session: Session) -> None:
    broken = await session.stream(model="demo", input="FAIL").final()
    assert broken.status == "failed"
    assert text_of(await session.stream(model="demo", input="Hi!").final()) == f"{HELLO}Hi!"


async def test_an_unknown_previous_response_fails_the_turn_only(session: Session) -> None:
    lost = session.stream(model="demo", input="?", store=False, previous_response_id="resp_no")
    with pytest.raises(UpstreamError) as refused:
        await lost.final()
    assert status_and_code(refused.value) == (400, "previous_response_not_found")
    assert refused.value.payload.param == "previous_response_id"
    assert not refused.value.retryable
    assert text_of(await session.stream(model="demo", input="Hi!").final()) == f"{HELLO}Hi!"


async def test_every_field_of_an_error_message_is_decoded() -> None:
    headers = {"Retry-After": "7"}

    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        message = "Slow down, sk-secretsecret !"
        await peer.send(error("busy", 429, message=message, param="model", headers=headers))

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError, match=r"^Slow down, \[redacted\] !$") as refused:
            await session.stream(input="?").final()
    assert status_and_code(refused.value) == (429, "busy")
    assert refused.value.payload.param == "model"
    assert refused.value.payload.type == "invalid_request_error"
    assert refused.value.headers == {"retry-after": "7"}
    assert refused.value.retryable


@pytest.mark.parametrize(
    ("field", "value"), [("background", True), ("extra_headers", {"a": "b"}), ("nonsense", 1), ("stream", True)]
)
async def test_invalid_parameters_are_not_sent(session: Session, field: str, value: object) -> None:
    with pytest.raises(RequestError) as refused:
        await session.stream(**{"model": "demo", field: value}).final()  # pyright: ignore
    assert refused.value.payload.param == field


async def test_a_turn_is_requested_with_one_message() -> None:
    received: list[object] = []

    async def meet(peer: ServerSide) -> None:
        while True:
            received.append(await peer.receive())
            await peer.send(*turn_messages("."), lane="side" if len(received) == 2 else "")

    async with serve_websocket(meet) as url, Session(url) as session:
        more = {"type": "x", "stream_id": "y", "stream": True, "acme": 1}
        await session.stream(model="m", input=[user_message("é")], extra_body=more).final()
        await session.lane("side").stream(model="m", store=False).final()
    assert received == [
        {
            "type": "response.create",
            "model": "m",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "é"}]}],
            "acme": 1,
        },
        {"type": "response.create", "model": "m", "store": False, "stream_id": "side"},
    ]


async def test_openais_dialect_is_understood() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        thought = delta("Hm.") | {"type": "response.reasoning_text.delta", "item_id": "rs_0"}
        searched = {"type": "web_search_call", "id": "ws_0", "status": "completed"}
        done = terminal(number=3)
        done["response"]["output"] = [searched]
        started = {"type": "response.web_search_call.searching", "sequence_number": 2}
        await peer.send(created(), thought, started, done)

    async with serve_websocket(meet) as url, Session(url) as session:
        events = [event async for event in session.stream(model="m")]
    assert ReasoningDelta in map(type, events)
    assert "response.web_search_call.searching" in [event.type for event in events]
    assert [item.type for item in events[-1].response.output] == [  # pyright: ignore
        "openai:web_search_call"
    ]


async def test_strict_mode_raises_at_the_first_violation() -> None:
    async def meet(peer: ServerSide) -> None:
        while True:
            await peer.receive()
            await peer.send(*turn_messages("never opened"))

    async with serve_websocket(meet) as url, Session(url, strict=True) as session:
        events = aiter(session.stream(model="m"))
        assert (await anext(events)).type == "response.created"
        with pytest.raises(RemoteProtocolError, match=r"\[in-progress-first\]"):
            await anext(events)
        with pytest.raises(RemoteProtocolError, match=r"\[in-progress-first\]"):
            await session.stream(model="m").final()


async def test_named_lanes_interleave(gated: str, gate: GatedModel) -> None:
    async with (
        Session(gated) as session,
        session.lane("left").stream(model="gate", input="l") as left,
        session.stream(lane="right", model="gate", input="r") as right,
    ):
        texts = [left.text, right.text]
        assert [await anext(text) for text in texts] == ["l", "r"]
        gate.release.set()
        assert [[piece async for piece in text] for text in texts] == [["."], ["."]]
        assert (await left.final()).id != (await right.final()).id
    assert gate.most_running == 2


async def test_turns_on_one_lane_wait_for_each_other_in_order(gated: str, gate: GatedModel) -> None:
    async with Session(gated) as session:
        finals = [
            asyncio.create_task(session.stream(model="gate", input=name).final()) for name in ("one", "two", "three")
        ]
        async with asyncio.timeout(5):
            while not gate.turns:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert len(gate.turns) == 1
        gate.release.set()
        assert [text_of(await final) for final in finals] == ["one.", "two.", "three."]
    assert gate.most_running == 1
    assert [turn.text for turn in gate.turns] == ["one", "two", "three"]


@pytest.mark.parametrize("name", ["a b", "é", "x" * 257])
async def test_an_invalid_lane_name_is_rejected(session: Session, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        session.stream(lane=name, model="demo")
    assert refused.value.payload.code == "invalid_stream_id"


async def test_messages_for_unknown_lanes_are_dropped() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.send(*turn_messages("before anything was asked"))
        await peer.receive()
        await peer.send(*turn_messages("elsewhere"), error("elsewhere"), lane="elsewhere")
        await peer.send(*turn_messages("here"))

    async with serve_websocket(meet) as url, Session(url) as session:
        await asyncio.sleep(0.05)
        assert text_of(await session.stream(model="m").final()) == "here"


async def test_a_server_without_lanes_answers_in_order() -> None:
    async def meet(peer: ServerSide) -> None:
        for _ in range(2):
            asked = await peer.receive()
            await peer.send(*turn_messages(f"to {asked['stream_id']}"))

    async with serve_websocket(meet) as url, Session(url) as session:
        streams = [session.stream(lane=lane, model="m").final() for lane in ("b", "a")]
        assert [text_of(final) for final in await asyncio.gather(*streams)] == ["to b", "to a"]


async def test_a_terminal_event_after_an_error_does_not_end_the_next_turn() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created("resp_0"), error("broken", None))
        await peer.receive()
        await peer.send(terminal("resp_0", "failed"), *turn_messages("well", "resp_1"))

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError) as broken:
            await session.stream(model="m").final()
        assert status_and_code(broken.value) == (400, "broken")
        assert (await session.stream(model="m").final()).id == "resp_1"


STRANGE = [b"\xff\x00", "no JSON", "[1, 2]", '{"type": ["x"]}', '{"type": "x", "stream_id": 7}', ""]


async def test_unreadable_messages_are_delivered_as_extensions() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        first, *rest = turn_messages("well")
        await peer.send(first, *STRANGE, *rest)

    async with serve_websocket(meet) as url, Session(url) as session, session.stream(model="m") as stream:
        events = [event async for event in stream]
        strangers = [event for event in events if isinstance(event, ExtensionEvent)]
        assert len(strangers) == len(STRANGE)
        assert text_of(stream.response) == "well"


@pytest.mark.parametrize("strange", STRANGE)
async def test_unreadable_messages_raise_in_strict_mode(strange: str | bytes) -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created(), strange)

    async with serve_websocket(meet) as url, Session(url, strict=True) as session:
        with pytest.raises(RemoteProtocolError):
            await session.stream(model="m").final()


async def test_a_surrogate_pair_split_over_two_messages_is_joined() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created(), lane="a")
        await peer.send(delta("\ud83d", 1), delta("\ude00", 2), terminal(number=3), lane="a")

    async with serve_websocket(meet) as url, Session(url) as session:
        assert text_of(await session.stream(lane="a", model="m").final()) == "\N{GRINNING FACE}"


async def wait_until_closed(session: Session) -> None:
    """Wait until a session is closed."""
    async with asyncio.timeout(5):
        while not session.closed:
            await asyncio.sleep(0.005)


async def test_closing_fails_every_waiting_turn(gated: str, gate: GatedModel) -> None:
    before = asyncio.all_tasks()
    session = Session(gated)
    await session.open()
    await session.open()  # it is open already
    waiting = [
        asyncio.create_task(session.stream(lane=lane, model="gate", input="?").final()) for lane in ("a", "b", "b", "")
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


async def test_a_turn_needs_an_open_session() -> None:
    session = Session("http://127.0.0.1:1/v1/responses")
    with pytest.raises(RequestError, match="not open"):
        await session.stream(model="demo").final()
    await session.close()


async def test_a_closed_websocket_fails_every_lane() -> None:
    async def meet(peer: ServerSide) -> None:
        for lane in ("a", "b"):
            await peer.receive()
            await peer.send(created(f"resp_{lane}"), delta("so far"), lane=lane)
        await peer.socket.close(1011, "sk-secretsecret is bad")

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


async def test_a_lost_connection_is_named_in_the_error() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        peer.socket.transport.abort()

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError, match="the connection was lost"):
            await session.stream(model="m").final()


async def test_the_code_of_a_connection_limit_reaches_every_turn() -> None:
    code = "websocket_connection_limit_reached"

    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created(), lane="a")
        await peer.send(error(code))
        await peer.socket.close(1001)

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


async def test_a_message_over_the_size_limit_closes_the_websocket() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(delta("x" * (20 * 1024 * 1024)))
        await peer.send(delta("x" * (33 * 1024 * 1024)))

    async with serve_websocket(meet) as url, Session(url) as session, session.stream(model="m") as stream:
        with pytest.raises(UpstreamError, match="more than 33554432 bytes") as closed:
            await stream.final()
        assert status_and_code(closed.value) == (502, "websocket_closed")
        assert len(text_of(stream.response)) == 20 * 1024 * 1024


async def test_a_server_that_answers_no_ping_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PING_INTERVAL", 0.05)

    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await asyncio.sleep(0.3)  # pings are answered meanwhile
        peer.socket.transport.pause_reading()
        await asyncio.sleep(0.5)

    async with serve_websocket(meet, close_timeout=0.1) as url, Session(url) as session:
        async with asyncio.timeout(2):
            with pytest.raises(UpstreamError, match="does not answer pings") as gone:
                await session.stream(model="m").final()
        assert status_and_code(gone.value) == (502, "websocket_closed")


async def test_a_silent_turn_times_out() -> None:
    async def meet(peer: ServerSide) -> None:
        await peer.receive()
        await peer.send(created())
        await peer.receive()

    patience = Timeouts(first_byte=5, idle=0.1)
    async with serve_websocket(meet) as url, Session(url, timeout=patience) as session:
        with pytest.raises(UpstreamError, match=r"sent nothing for 0\.1 seconds") as late:
            await session.stream(model="m").final()
        assert status_and_code(late.value) == (504, "timeout")
        with pytest.raises(UpstreamError, match="did not end the previous turn"):
            await session.stream(model="m").final()
        assert not session.closed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "stream_id", "x"]), inner),
)


@given(JSON)
def test_any_json_has_a_label_and_may_be_an_error(value: object) -> None:
    message = json.dumps(value).encode()
    fields = value if isinstance(value, dict) else {}
    kind, lane = fields.get("type"), fields.get("stream_id")
    label = decode_label(message)
    assert label.type == (kind if isinstance(kind, str) else "")
    assert (label.stream_id or "") == (lane if isinstance(lane, str) else "")
    assert 400 <= websocket_message_error(message).status < 600
    assert decode_response_id(message) is None


@given(st.binary())
def test_any_bytes_have_a_label(message: bytes) -> None:
    assert isinstance(decode_label(message), MessageLabel)
    assert 400 <= websocket_message_error(message).status < 600


def test_a_label_is_read_beside_anything() -> None:
    message = rb'{"delta": "\ud83d", "type": "t", "stream_id": "s", "deep": [[{}]]}'
    assert decode_label(message) == MessageLabel("t", "s")
    assert decode_label(b'{"type": ' + b"[" * 100_000) == MessageLabel("", "")


def test_values_without_json_are_rejected() -> None:
    with pytest.raises(RequestError) as refused:
        encode_create({"model": object()}, "")
    assert refused.value.payload.code == "invalid_json"

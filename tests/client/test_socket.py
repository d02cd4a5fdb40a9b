"""Sessions over WebSocket, against our own server and against scripted ones."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from antiphon.client.socket import Session
from antiphon.core.errors import RemoteProtocolError, RequestError, UpstreamError
from antiphon.core.events import ExtensionEvent, OutputTextDelta, ReasoningDelta, ResponseCreated
from antiphon.core.items import user_message
from antiphon.server.settings import Settings
from tests.client.scripted import (
    ServerSide,
    created,
    delta,
    error,
    terminal,
    serve_websocket,
    text_of,
    status_and_code,
    turn_messages,
)
from tests.server.gating import GatedModel
from tests.serving import run_server

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


# --- turns ------------------------------------------------------------------------------------


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


async def test_turns_continue_each_other_without_being_stored(session: Session) -> None:
    first = await session.stream(model="demo", input="I am Ada.", store=False).final()
    second = session.stream(
        model="demo", input=[user_message("Who am I?")], store=False, previous_response_id=first.id
    )
    said = "".join([text async for text in second.text])
    assert said == f"{HELLO}Who am I? This conversation has 3 messages."


async def test_a_warm_up_is_continued(session: Session) -> None:
    warm = await session.stream(model="demo", input="A.", store=False, generate=False).final()
    assert warm.output == []
    last = session.stream(model="demo", input="B.", store=False, previous_response_id=warm.id)
    assert text_of(await last.final()) == f"{HELLO}B. This conversation has 2 messages."


async def test_a_turn_that_breaks_is_told_to_the_end(session: Session) -> None:
    broken = await session.stream(model="demo", input="FAIL").final()
    assert broken.status == "failed"
    assert text_of(await session.stream(model="demo", input="Hi!").final()) == f"{HELLO}Hi!"


async def test_an_unknown_id_is_refused_and_the_session_goes_on(session: Session) -> None:
    lost = session.stream(model="demo", input="?", store=False, previous_response_id="resp_no")
    with pytest.raises(UpstreamError) as refused:
        await lost.final()
    assert status_and_code(refused.value) == (400, "previous_response_not_found")
    assert refused.value.payload.param == "previous_response_id"
    assert not refused.value.retryable
    assert text_of(await session.stream(model="demo", input="Hi!").final()) == f"{HELLO}Hi!"


async def test_every_word_of_an_envelope_is_kept() -> None:
    headers = {"Retry-After": "7"}

    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        message = "Slow down, sk-secretsecret !"
        await visitor.send(error("busy", 429, message=message, param="model", headers=headers))

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError, match=r"^Slow down, \[redacted\] !$") as refused:
            await session.stream(input="?").final()
    assert status_and_code(refused.value) == (429, "busy")
    assert refused.value.payload.param == "model"
    assert refused.value.payload.type == "invalid_request_error"
    assert refused.value.headers == {"retry-after": "7"}
    assert refused.value.retryable


@pytest.mark.parametrize(
    ("field", "value"),
    [("background", True), ("extra_headers", {"a": "b"}), ("nonsense", 1), ("stream", True)],
)
async def test_what_cannot_be_asked_is_not_sent(
    session: Session, field: str, value: object
) -> None:
    with pytest.raises(RequestError) as refused:
        await session.stream(**{"model": "demo", field: value}).final()  # pyright: ignore
    assert refused.value.payload.param == field


async def test_what_is_asked_is_one_message() -> None:
    heard: list[object] = []

    async def meet(visitor: ServerSide) -> None:
        while True:
            heard.append(await visitor.receive())
            await visitor.send(*turn_messages("."), lane="side" if len(heard) == 2 else "")

    async with serve_websocket(meet) as url, Session(url) as session:
        more = {"type": "x", "stream_id": "y", "stream": True, "acme": 1}
        await session.stream(model="m", input=[user_message("é")], extra_body=more).final()
        await session.lane("side").stream(model="m", store=False).final()
    assert heard == [
        {
            "type": "response.create",
            "model": "m",
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "é"}],
                }
            ],
            "acme": 1,
        },
        {"type": "response.create", "model": "m", "store": False, "stream_id": "side"},
    ]


async def test_the_other_dialect_is_understood() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        thought = delta("Hm.") | {"type": "response.reasoning_text.delta", "item_id": "rs_0"}
        searched = {"type": "web_search_call", "id": "ws_0", "status": "completed"}
        done = terminal(number=3)
        done["response"]["output"] = [searched]
        started = {"type": "response.web_search_call.searching", "sequence_number": 2}
        await visitor.send(created(), thought, started, done)

    async with serve_websocket(meet) as url, Session(url) as session:
        events = [event async for event in session.stream(model="m")]
    assert ReasoningDelta in map(type, events)
    assert "response.web_search_call.searching" in [event.type for event in events]
    assert [item.type for item in events[-1].response.output] == [  # pyright: ignore
        "openai:web_search_call"
    ]


async def test_an_illegal_turn_is_told_up_to_the_broken_rule_in_strict_mode() -> None:
    async def meet(visitor: ServerSide) -> None:
        while True:
            await visitor.receive()
            await visitor.send(*turn_messages("never opened"))

    async with serve_websocket(meet) as url, Session(url, strict=True) as session:
        events = aiter(session.stream(model="m"))
        assert (await anext(events)).type == "response.created"
        with pytest.raises(RemoteProtocolError, match=r"\[in-progress-first\]"):
            await anext(events)
        with pytest.raises(RemoteProtocolError, match=r"\[in-progress-first\]"):
            await session.stream(model="m").final()


# --- lanes ------------------------------------------------------------------------------------


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
            asyncio.create_task(session.stream(model="gate", input=name).final())
            for name in ("one", "two", "three")
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
async def test_a_lane_must_have_a_name_that_servers_take(session: Session, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        session.stream(lane=name, model="demo")
    assert refused.value.payload.code == "invalid_stream_id"


async def test_messages_for_lanes_that_nobody_reads_are_dropped() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.send(*turn_messages("before anything was asked"))
        await visitor.receive()
        await visitor.send(*turn_messages("elsewhere"), error("elsewhere"), lane="elsewhere")
        await visitor.send(*turn_messages("here"))

    async with serve_websocket(meet) as url, Session(url) as session:
        await asyncio.sleep(0.05)
        assert text_of(await session.stream(model="m").final()) == "here"


async def test_a_server_without_lanes_answers_in_the_order_it_was_asked() -> None:
    async def meet(visitor: ServerSide) -> None:
        for _ in range(2):
            asked = await visitor.receive()
            await visitor.send(*turn_messages(f"to {asked['stream_id']}"))

    async with serve_websocket(meet) as url, Session(url) as session:
        streams = [session.stream(lane=lane, model="m").final() for lane in ("b", "a")]
        assert [text_of(final) for final in await asyncio.gather(*streams)] == ["to b", "to a"]


async def test_the_end_of_a_response_after_its_error_is_not_the_next_turn() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created("resp_0"), error("broken", None))
        await visitor.receive()
        await visitor.send(terminal("resp_0", "failed"), *turn_messages("well", "resp_1"))

    async with serve_websocket(meet) as url, Session(url) as session:
        with pytest.raises(UpstreamError) as broken:
            await session.stream(model="m").final()
        assert status_and_code(broken.value) == (400, "broken")
        assert (await session.stream(model="m").final()).id == "resp_1"


# --- strange messages -------------------------------------------------------------------------

STRANGE = [b"\xff\x00", "no JSON", "[1, 2]", '{"type": ["x"]}', '{"type": "x", "stream_id": 7}', ""]


async def test_strange_messages_do_no_harm() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        first, *rest = turn_messages("well")
        await visitor.send(first, *STRANGE, *rest)

    async with serve_websocket(meet) as url, Session(url) as session, session.stream(model="m") as stream:
        events = [event async for event in stream]
        strangers = [event for event in events if isinstance(event, ExtensionEvent)]
        assert len(strangers) == len(STRANGE)
        assert text_of(stream.response) == "well"


@pytest.mark.parametrize("strange", STRANGE)
async def test_strange_messages_break_a_rule_in_strict_mode(strange: str | bytes) -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created(), strange)

    async with serve_websocket(meet) as url, Session(url, strict=True) as session:
        with pytest.raises(RemoteProtocolError):
            await session.stream(model="m").final()


async def test_an_emoji_may_be_cut_between_two_messages() -> None:
    async def meet(visitor: ServerSide) -> None:
        await visitor.receive()
        await visitor.send(created(), lane="a")
        await visitor.send(delta("\ud83d", 1), delta("\ude00", 2), terminal(number=3), lane="a")

    async with serve_websocket(meet) as url, Session(url) as session:
        assert text_of(await session.stream(lane="a", model="m").final()) == "\N{GRINNING FACE}"

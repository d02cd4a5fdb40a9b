"""Compaction by the model, or by an agent's compactor."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.agents.agent import Agent, Function, Turn, agent
from antiphon.agents.demo import demo, echo
from antiphon.engine.compaction import KEPT_TOKENS, SUMMARY_PROMPT, compact
from antiphon.engine.engine import ANONYMOUS, Caller, Engine
from antiphon.engine.models import Models
from antiphon.engine.sealing import SUMMARY_INTRODUCTION, ItemSealer, KeyRing
from antiphon.protocol import parts
from antiphon.protocol.errors import AntiphonError, ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.items import (
    Compaction,
    FunctionCallOutput,
    InputImage,
    InputText,
    Item,
    Message,
    OutputText,
    user_message,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.response import CompactResource, ResponseUsage, ResponseWarning
from antiphon.wire.openresponses import decode_compact, decode_request
from tests.protocol.builders import counting_ids, to_json
from tests.spec.schema_checks import check_compact_resource

pytestmark = pytest.mark.anyio

NOW = 1_700_000_000
ESTIMATED = ResponseWarning(
    code="usage_estimated", message="The model did not count its tokens; these are estimates.", param="usage"
)


class Writer(Agent):
    """A model with a fixed answer that records its turns."""

    def __init__(self, *answer: Part, window: int | None = None) -> None:
        super().__init__("writer", self.write, window=window)
        self.answer = answer or (parts.Text("They met."), parts.Usage(12, 3))
        self.turns: list[Turn] = []

    async def write(self, turn: Turn) -> AsyncIterator[Part]:
        self.turns.append(turn)
        for part in self.answer:
            yield part


def message(role: str, text: str) -> dict[str, object]:
    """Return a message as a client writes it."""
    return {"role": role, "content": text}


def make_engine(*agents: Agent) -> Engine:
    """Return an engine whose ids are known beforehand."""
    return Engine(Models(agents), ids=counting_ids(), clock=lambda: NOW + 0.5)


async def run_compact(engine: Engine, caller: Caller = ANONYMOUS, **body: object) -> CompactResource:
    """Compact, and read the result as the specification does."""
    resource = await compact(engine, decode_compact(body), caller)
    check_compact_resource(to_json(resource))
    return resource


async def compact_error(engine: Engine, **body: object) -> ErrorPayload:
    """Return why nothing was compacted."""
    with pytest.raises(AntiphonError) as caught:
        await compact(engine, decode_compact(body))
    assert isinstance(caught.value, RequestError | UpstreamError)
    return caught.value.payload


def unseal(engine: Engine, item: Item, tenant: str = "") -> list[Item]:
    """Return a compaction as a model would read it."""
    return ItemSealer(engine.key_ring, "writer", tenant).unseal_items([item], "input")


def summary_items(text: str, id: str = "cmp_0") -> list[Item]:
    """Return the message that a summary is read as."""
    content: list[Any] = [InputText(text=f"{SUMMARY_INTRODUCTION}\n\n{text}")]
    return [Message(id=id, role="developer", content=content)]


async def test_user_messages_stay_and_the_rest_becomes_a_sealed_summary() -> None:
    writer = Writer()
    engine = make_engine(writer)
    resource = await run_compact(
        engine,
        model="writer",
        instructions="Be kind.",
        input=[message("user", "Hello!"), message("assistant", "Good day."), message("user", "So?")],
    )
    sealed = resource.output[-1]
    assert isinstance(sealed, Compaction)
    assert resource == CompactResource(
        id="resp_0",
        output=[
            Message(id="msg_0", role="user", status="completed", content=[InputText(text="Hello!")]),
            Message(id="msg_2", role="user", status="completed", content=[InputText(text="So?")]),
            Compaction(id="cmp_0", encrypted_content=sealed.encrypted_content),
        ],
        created_at=NOW,
        usage=ResponseUsage.of(12, 3),
    )
    assert "They met." not in sealed.encrypted_content
    assert unseal(engine, sealed) == summary_items("They met.")


async def test_the_model_is_asked_inside_the_conversation() -> None:
    writer = Writer()
    await run_compact(
        make_engine(writer),
        model="writer",
        instructions="Be kind.",
        input=[message("user", "Hello!"), message("assistant", "Good day.")],
    )
    [turn] = writer.turns
    assert turn.instructions == "Be kind."
    assert not turn.tools
    assert turn.items == [
        Message(id="msg_0", role="user", content=[InputText(text="Hello!")]),
        Message(id="msg_1", role="assistant", content=[OutputText(text="Good day.")]),
        user_message(SUMMARY_PROMPT),
    ]


async def test_calls_become_messages_and_reasoning_is_left_out() -> None:
    writer = Writer()
    image = {"type": "input_image", "image_url": "https://a.example/b.png"}
    resource = await run_compact(
        make_engine(writer),
        model="writer",
        input=[
            message("user", "Look up Lisbon."),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"q":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "Sunny."},
            {"type": "function_call", "call_id": "c2", "name": "draw", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": [image]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ],
    )
    assert writer.turns[0].items[1:-1] == [
        Message(role="assistant", content=[OutputText(text='[I called find with {"q":1}]')]),
        Message(role="user", content=[InputText(text="[find gave:]"), InputText(text="Sunny.")]),
        Message(role="assistant", content=[OutputText(text="[I called draw with {}]")]),
        Message(role="user", content=[InputText(text="[draw gave:]"), InputImage(image_url="https://a.example/b.png")]),
        Message(
            role="assistant",
            content=[OutputText(text='[{"type":"openai:web_search_call","id":"ws_1","status":"completed"}]')],
        ),
    ]
    assert [item.type for item in resource.output] == ["message", "compaction"]


async def test_a_previous_response_can_be_compacted() -> None:
    writer = Writer()
    engine = make_engine(writer)
    run = await engine.create_run(decode_request({"model": "writer", "input": "Hello!"}))
    first = await run.execute()
    resource = await run_compact(engine, model="writer", previous_response_id=first.id, input="And then?")
    messages = [item.text for item in resource.output if isinstance(item, Message)]
    assert messages == ["Hello!", "And then?"]
    read = [item.text for item in writer.turns[-1].items if isinstance(item, Message)]
    assert read == ["Hello!", "They met.", "And then?", SUMMARY_PROMPT]


async def test_an_earlier_compaction_is_part_of_the_summary() -> None:
    writer = Writer()
    engine = make_engine(writer)
    first = await run_compact(engine, model="writer", input="Hello!")
    again = [to_json(item) for item in first.output]
    second = await run_compact(engine, model="writer", input=[*again, message("user", "And?")])
    assert writer.turns[-1].items[1:2] == summary_items("They met.")
    assert [item.type for item in second.output] == ["message", "message", "compaction"]
    assert second.output[0] == first.output[0]
    assert unseal(engine, second.output[-1]) == summary_items("They met.", "cmp_1")


async def test_the_output_is_accepted_as_input() -> None:
    writer = Writer()
    engine = make_engine(writer)
    first = await run_compact(engine, model="writer", input=[message("user", "Hello!")])
    messages = [*(to_json(item) for item in first.output), message("user", "And?")]
    run = await engine.create_run(decode_request({"model": "writer", "input": messages, "store": False}))
    assert (await run.execute()).status == "completed"
    assert writer.turns[-1].items == [
        first.output[0],
        *summary_items("They met."),
        Message(id="msg_2", role="user", content=[InputText(text="And?")]),
    ]


async def test_the_latest_user_messages_and_all_instructions_are_kept() -> None:
    long = "x" * KEPT_TOKENS  # a quarter of what is kept, in tokens
    messages = [
        message("system", "Be kind."),
        message("user", "forgotten"),
        *[message("user", f"{number}{long}") for number in range(4)],
        message("developer", "Be brief."),
        message("user", "Last."),
    ]
    resource = await run_compact(make_engine(Writer()), model="writer", input=messages)
    kept = [item.text for item in resource.output if isinstance(item, Message)]
    assert kept == ["Be kind.", f"1{long}", f"2{long}", f"3{long}", "Be brief.", "Last."]


async def test_a_conversation_that_exceeds_the_window_is_truncated() -> None:
    writer = Writer(window=60)
    messages = [message("user", f"{number} " + "word " * 20) for number in range(5)]
    await run_compact(make_engine(writer), model="writer", input=messages)
    assert [item.text[0] for item in writer.turns[0].items if isinstance(item, Message)] == [
        "3",
        "4",
        SUMMARY_PROMPT[0],
    ]


async def test_usage_that_was_not_reported_is_estimated() -> None:
    resource = await run_compact(make_engine(Writer(parts.Text("They met."))), model="writer", input="Hi")
    assert resource.usage == ResponseUsage.of(5, 7)
    assert resource.warnings == [ESTIMATED]


async def test_a_truncated_summary_is_used_with_a_warning() -> None:
    engine = make_engine(Writer(parts.Text("They m"), parts.Finish("length", "max_tokens"), parts.Usage(1, 1)))
    resource = await run_compact(engine, model="writer", input="Hi")
    assert unseal(engine, resource.output[-1]) == summary_items("They m")
    assert resource.warnings == [
        ResponseWarning(code="summary_cut", message="The model had to stop before its summary was whole.")
    ]


async def test_unused_fields_give_warnings() -> None:
    resource = await run_compact(make_engine(Writer()), model="writer", input="Hi", temperature=2)
    assert resource.warnings == [
        ResponseWarning(
            code="unused_parameter", message="The field 'temperature' is not used by this server.", param="temperature"
        )
    ]


FAILURE = parts.Failure(ErrorPayload(type="model_error", code="overloaded", message="Not now."))


@pytest.mark.parametrize(
    ("answer", "message", "code"),
    [
        ([parts.Refusal("I will not.")], "it refused: I will not.", "compaction_failed"),
        ([parts.Text("")], "it wrote nothing.", "compaction_failed"),
        ([parts.Call(0, "f", "{}")], "it wrote nothing.", "compaction_failed"),
        ([parts.Finish("length")], "it stopped early (max_output_tokens).", "max_output_tokens"),
        (
            [parts.Text("They m"), parts.Finish("content_filter")],
            "it stopped early (content_filter).",
            "content_filter",
        ),
    ],
)
async def test_a_model_without_a_summary_is_an_error(answer: Sequence[Part], message: str, code: str) -> None:
    assert await compact_error(make_engine(Writer(*answer)), model="writer", input="Hi") == ErrorPayload(
        type="model_error", code=code, message=f"The model 'writer' did not summarise the conversation: {message}"
    )


async def test_a_failure_of_the_model_is_an_error() -> None:
    engine = make_engine(Writer(parts.Text("They"), FAILURE))
    assert await compact_error(engine, model="writer", input="Hi") == FAILURE.error


def failing_engine(error: Exception, *first: str) -> Engine:
    """Return an engine whose only model yields some text and raises."""

    async def write(turn: Turn) -> AsyncIterator[str]:
        del turn
        for word in first:
            yield word
        raise error

    return make_engine(Agent("writer", write))


@pytest.mark.parametrize("first", [[], ["They"]])
async def test_an_error_with_a_status_keeps_it(first: list[str]) -> None:
    error = UpstreamError("Too many.", status=429, code="rate_limit_exceeded")
    with pytest.raises(UpstreamError) as caught:
        await compact(failing_engine(error, *first), decode_compact({"model": "writer", "input": "Hi"}))
    assert caught.value is error


async def test_an_exception_of_the_model_is_not_shown() -> None:
    engine = failing_engine(RuntimeError("a secret"), "They")
    assert await compact_error(engine, model="writer", input="Hi") == ErrorPayload(
        type="server_error", code="server_error", message="The model 'writer' failed while answering."
    )


OUTPUT = FunctionCallOutput(call_id="c9", output="1")


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": "Hi"}, "model", "missing_required_parameter"),
        ({"model": None, "input": "Hi"}, "model", "missing_required_parameter"),
        ({"model": "writer"}, "input", "missing_required_parameter"),
        ({"model": "nobody", "input": "Hi"}, "model", "model_not_found"),
        ({"model": "writer", "previous_response_id": "resp_9"}, "previous_response_id", "previous_response_not_found"),
        ({"model": "writer", "input": [to_json(OUTPUT)]}, "input[0].call_id", "function_call_not_found"),
        (
            {"model": "writer", "input": [{"type": "compaction", "encrypted_content": "?"}]},
            "input[0].encrypted_content",
            "invalid_encrypted_content",
        ),
    ],
)
async def test_a_request_that_is_invalid_for_a_response_is_rejected(
    body: dict[str, object], param: str, code: str
) -> None:
    payload = await compact_error(make_engine(Writer()), **body)
    assert (payload.param, payload.code) == (param, code)


async def test_cancelling_the_request_cancels_the_model() -> None:
    stopped = asyncio.Event()

    async def write(turn: Turn) -> AsyncIterator[str]:
        del turn
        try:
            yield "They"
            await asyncio.sleep(60)
        finally:
            stopped.set()

    work = compact(make_engine(Agent("writer", write)), decode_compact({"model": "writer", "input": "Hi"}))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work, 0.05)
    assert stopped.is_set()


async def test_a_compaction_belongs_to_its_tenant() -> None:
    engine = make_engine(Writer())
    resource = await run_compact(engine, Caller("us"), model="writer", input="Hi")
    assert unseal(engine, resource.output[-1], "us") == summary_items("They met.")
    with pytest.raises(RequestError):
        unseal(engine, resource.output[-1], "them")


def with_compactor(function: Function) -> Engine:
    """Return an engine whose only model has a compactor."""

    @agent("writer")
    async def writer(turn: Turn) -> str:
        raise AssertionError("the model was asked")

    writer.compactor(function)
    return make_engine(writer)


async def test_an_agent_may_have_its_own_compactor() -> None:
    async def shorten(items: Sequence[Item], turn: Turn) -> str:
        return f"{len(items)} items for {turn.model}"

    engine = with_compactor(shorten)
    resource = await run_compact(engine, model="writer", input="Hi")
    assert unseal(engine, resource.output[-1]) == summary_items("1 items for writer")
    assert resource.usage == ResponseUsage.of(5, 9)
    assert resource.warnings == [ESTIMATED]


async def test_a_compactor_may_be_a_plain_function_and_return_items() -> None:
    def last(items: Sequence[Item], turn: Turn) -> list[Item]:
        del turn
        return list(items[-1:])

    engine = with_compactor(last)
    messages = [message("user", "Hi"), message("assistant", "Good day.")]
    resource = await run_compact(engine, model="writer", input=messages)
    assert unseal(engine, resource.output[-1]) == [
        Message(id="msg_1", role="assistant", content=[OutputText(text="Good day.")])
    ]


@pytest.mark.parametrize("made", [None, 3, [], ["They met."], [user_message("Hi"), None]])
async def test_a_compactor_that_returns_anything_else_is_an_error(made: object) -> None:
    async def strange(items: Sequence[Item], turn: Turn) -> object:
        del items, turn
        return made

    payload = await compact_error(with_compactor(strange), model="writer", input="Hi")
    assert (payload.type, payload.code) == ("server_error", "server_error")


@pytest.mark.parametrize("model", ["demo", "echo"])
async def test_the_built_in_models_have_a_compactor(model: str) -> None:
    engine = Engine(Models([demo, echo]), key_ring=KeyRing.ephemeral())
    messages = [
        message("user", "Our ship is called the Aurora and it sails on Friday morning at nine"),
        message("assistant", "A fine name."),
        {"type": "function_call", "call_id": "c1", "name": "sail", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Gone."},
    ]
    resource = await run_compact(engine, model=model, input=messages)
    text = (
        "- user: Our ship is called the Aurora and it sails on Friday morning\n"
        "- assistant: A fine name.\n- function_call sail {}\n- function_call_output Gone."
    )
    assert unseal(engine, resource.output[-1]) == summary_items(text, str(resource.output[-1].id))
    assert resource.usage == ResponseUsage.of(20, len(text.split()))
    assert resource.warnings is UNSET

"""Agents that ask other models with `turn.ask`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.agents.agent import Agent, agent
from antiphon.agents.ask import Answer
from antiphon.agents.demo import demo, echo
from antiphon.agents.turn import Turn
from antiphon.engine.compaction import compact
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, user_message
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionTool
from antiphon.store.base import IdempotencyRecord
from antiphon.store.memory import MemoryStore
from antiphon.wire.openresponses import decode_compact
from tests.engine.recording_sink import RecordingSink

pytestmark = pytest.mark.anyio

WEATHER = FunctionTool(name="weather")


@agent("broken")
async def broken(turn: Turn) -> AsyncIterator[object]:
    """Fails before any output, or after some."""
    if turn.text == "now":
        raise UpstreamError("No answer.", status=503)
    yield "Wait"
    if turn.text == "failure":
        yield parts.Failure(ErrorPayload(message="It broke.", type="model_error"), 502)
    elif turn.text == "later":
        raise UpstreamError("No more.", status=503)
    else:
        raise ValueError("a secret")


def make_engine(*agents: Agent, store: MemoryStore | None = None) -> Engine:
    return Engine(Models([*agents, broken, demo, echo], aliases={"best": ["broken", "echo"]}), store=store)


async def respond(*agents: Agent, text: str = "hello", store: MemoryStore | None = None) -> Response:
    """Return the response of the first of some agents; check its stream."""
    sink = RecordingSink()
    request = Request.from_message(agents[0].models[-1], text)
    run = await make_engine(*agents, store=store).create_run(request, sink)
    response = await run.execute()
    assert find_violations(sink.events) == []
    return response


def warnings(response: Response) -> list[tuple[str, str]]:
    return [] if response.warnings is UNSET else [(warning.code, warning.message) for warning in response.warnings]


def tokens(response: Response) -> tuple[int, int]:
    assert response.usage
    return response.usage.input_tokens, response.usage.output_tokens


@agent("router")
async def router(turn: Turn) -> AsyncIterator[object]:
    """Passes on the answer of `echo`."""
    yield "It says: "
    async for part in turn.ask("echo", turn.text):
        yield part


async def test_an_agent_passes_on_the_parts_of_another_model_and_its_tokens() -> None:
    response = await respond(router, text="one two")
    assert response.output_text == "It says: one two"
    assert tokens(response) == (2, 2)
    assert warnings(response) == []


async def test_the_tokens_of_all_models_at_any_depth_are_added() -> None:
    @agent("twice")
    async def twice(turn: Turn) -> AsyncIterator[object]:
        first, second = await asyncio.gather(turn.ask("router", "one"), turn.ask("echo", "one two"))
        yield first.text + second.text
        yield parts.Usage(input_tokens=100, output_tokens=10)

    response = await respond(twice, router)
    assert response.output_text == "It says: oneone two"
    assert tokens(response) == (103, 13)


async def test_tokens_that_the_other_model_does_not_count_are_estimated_with_a_warning() -> None:
    @agent("plain")
    async def plain(turn: Turn) -> str:
        return (await turn.ask("vague", "12345678")).text

    @agent("vague")
    async def vague() -> str:
        return "x" * 40

    response = await respond(plain, vague)
    assert tokens(response) == (6, 14)
    assert warnings(response) == [
        ("usage_estimated", "vague: The model did not count its tokens; these are estimates.")
    ]


async def test_the_keywords_are_fields_of_the_request() -> None:
    seen: list[Turn] = []

    @agent("asks")
    async def asks(turn: Turn) -> AsyncIterator[object]:
        fields = {"instructions": "Be brief.", "tools": turn.tools, "max_output_tokens": 20}
        items = [*turn.items, {"role": "user", "content": "And now?"}]
        async for part in turn.ask("listens/well", items, temperature=0.5, text={"verbosity": "low"}, **fields):
            yield part

    listens = Agent("listens", lambda: "never")

    @listens.entry("well")
    async def well(turn: Turn) -> str:
        seen.append(turn)
        return "yes"

    await respond(asks, listens)
    [turn] = seen
    assert (turn.text, turn.instructions, turn.entry, len(turn.items)) == ("And now?", "Be brief.", "well", 2)
    assert (turn.request.max_output_tokens, turn.request.temperature) == (20, 0.5)
    assert turn.request.text.verbosity == "low"
    assert turn.cancelled.is_set()


async def test_an_agent_runs_its_own_tools_for_another_model() -> None:
    @agent("tools")
    async def tools(turn: Turn) -> AsyncIterator[object]:
        items = list(turn.items)
        for _ in range(5):
            answer = turn.ask("demo", items, tools=[WEATHER])
            async for part in answer:
                yield part
            items += answer.output
            calls = [item for item in answer.output if isinstance(item, FunctionCall)]
            if not calls:
                return
            for call in calls:
                output = FunctionCallOutput(call_id=call.call_id, output="sunny")
                items.append(output)
                yield output

    response = await respond(tools, text="What is the weather?")
    assert [item.type for item in response.output] == ["function_call", "function_call_output", "message"]
    call, output, message = response.output
    assert isinstance(call, FunctionCall)
    assert isinstance(output, FunctionCallOutput)
    assert call.call_id == output.call_id
    assert isinstance(message, Message)
    assert "sunny" in message.text
    assert warnings(response) == []


async def test_the_other_models_calls_obey_the_tool_choice_of_the_agents_request() -> None:
    @agent("strict")
    async def strict(turn: Turn) -> AsyncIterator[object]:
        async for part in turn.ask("caller", "x", tools=[WEATHER], tool_choice="none"):
            yield part

    @agent("caller")
    async def caller() -> AsyncIterator[object]:
        yield parts.Call(0, "weather", "{}")
        yield parts.Usage(1, 1)

    response = await respond(strict, caller)
    assert [item.type for item in response.output] == ["message"]
    assert [code for code, _ in warnings(response)] == ["tool_not_allowed"]


async def test_a_plain_function_asks_from_its_thread() -> None:
    @agent("blocking")
    def blocking(turn: Turn) -> str:
        answer = turn.ask("echo", "one two")
        assert [type(part) for part in answer] == [parts.Text, parts.Text]
        return answer.text + "".join(part.text for part in turn.ask("echo", "!") if isinstance(part, parts.Text))

    @blocking.entry("stream")
    def stream(turn: Turn) -> Iterator[parts.Part]:
        for _ in turn.ask("demo", "Tell me a story."):
            break  # the rest is not wanted
        yield from turn.ask("echo", turn.text)

    response = await respond(blocking)
    assert response.output_text == "hello"
    del blocking.entries["stream"]
    response = await respond(blocking)
    assert response.output_text == "one two!"
    assert tokens(response) == (3, 3)


async def test_a_for_loop_in_an_async_agent_is_an_error() -> None:
    @agent("wrong")
    async def wrong(turn: Turn) -> AsyncIterator[object]:
        with pytest.raises(TypeError, match="async for"):
            next(iter(turn.ask("echo", "x")))
        yield "told"

    assert (await respond(wrong)).output_text == "told"


@pytest.mark.parametrize("reads", ["async", "thread"])
async def test_the_other_model_is_cancelled_together_with_the_agent(reads: str) -> None:
    stopped = asyncio.Event()
    thread_ended = threading.Event()

    @agent("waits")
    async def waits(turn: Turn) -> AsyncIterator[object]:
        async for part in turn.ask("endless", "x"):
            yield part

    @agent("waits")
    def waits_in_thread(turn: Turn) -> Iterator[object]:
        try:
            yield from turn.ask("endless", "x")
        finally:
            thread_ended.set()

    @agent("endless")
    async def endless() -> AsyncIterator[object]:
        try:
            yield "on"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    engine = make_engine(waits if reads == "async" else waits_in_thread, endless)
    run = await engine.create_run(Request.from_message("waits", "x"))
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(20):
        await run.started.wait()
        while run.response.output_text != "on":
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    assert (run.response.status, run.response.output_text) == ("cancelled", "on")
    assert tokens(run.response) == (5, 5)
    if reads == "thread":
        assert await asyncio.to_thread(thread_ended.wait, 20)


async def test_a_model_whose_answer_is_left_unread_is_stopped_at_the_end() -> None:
    stopped = asyncio.Event()
    left: list[Answer] = []

    @agent("impatient")
    async def impatient(turn: Turn) -> AsyncIterator[object]:
        left.extend((turn.ask("endless", "x"), turn.ask("endless", "never read")))
        async for part in left[0]:
            yield part
            break
        yield " done"

    @agent("endless")
    async def endless() -> AsyncIterator[object]:
        try:
            while True:
                yield "x"
        finally:
            stopped.set()

    response = await respond(impatient, endless)
    assert response.output_text == "x done"
    assert stopped.is_set()
    # What has arrived may still be read, but nothing more.
    with pytest.raises(RuntimeError, match="was stopped"):
        await left[0]
    with pytest.raises(RuntimeError, match="after its agent had ended"):
        await left[1]


@pytest.mark.parametrize(
    ("model", "text", "status", "message"),
    [
        ("ecko", "x", 404, "The agent's request to 'ecko' was rejected: The model 'ecko' does not exist. Did you"),
        ("broken", "now", 503, "No answer."),
        ("broken", "later", 503, "No more."),
        ("broken", "failure", 502, "It broke."),
        ("broken", "bug", 500, "The model 'broken' failed while answering."),
    ],
)
async def test_an_error_of_the_other_model_is_raised_in_the_agent(
    model: str, text: str, status: int, message: str
) -> None:
    caught: list[RequestError | UpstreamError] = []

    @agent("careful")
    async def careful(turn: Turn) -> AsyncIterator[object]:
        try:
            async for part in turn.ask(model, text):
                yield part
        except (RequestError, UpstreamError) as error:
            caught.append(error)
        yield " sorry"

    response = await respond(careful)
    [error] = caught
    assert error.payload.message.startswith(message)
    assert (error.status, error.payload.param) == (status, None)
    assert response.output_text == ("Wait sorry" if text in ("later", "failure", "bug") else " sorry")


async def test_an_error_that_the_agent_does_not_catch_is_its_own() -> None:
    @agent("careless")
    async def careless(turn: Turn) -> str:
        return (await turn.ask("nothing", "x")).text

    with pytest.raises(RequestError) as caught:
        await respond(careless)
    assert (caught.value.status, caught.value.payload.param) == (404, None)


@pytest.mark.parametrize("fields", [{"temperature": "hot"}, {"tools": [{"type": "function"}]}, {"include": ["x"]}])
async def test_a_request_that_is_not_valid_is_an_error(fields: dict[str, object]) -> None:
    @agent("wrong")
    async def wrong(turn: Turn) -> AsyncIterator[object]:
        with pytest.raises(RequestError):
            turn.ask("echo", "x", **fields)
        yield "caught"

    assert (await respond(wrong)).output_text == "caught"


@pytest.mark.parametrize("name", ["store", "stream", "background", "conversation"])
async def test_fields_that_make_no_sense_are_named(name: str) -> None:
    @agent("wrong")
    async def wrong(turn: Turn) -> AsyncIterator[object]:
        with pytest.raises(TypeError, match=f"no '{name}'"):
            turn.ask("echo", "x", **{name: True})
        yield "caught"

    assert (await respond(wrong)).output_text == "caught"


async def test_an_agent_that_asks_itself_ends_with_a_clear_error() -> None:
    @agent("mirror")
    async def mirror(turn: Turn) -> AsyncIterator[object]:
        async for part in turn.ask("mirror", turn.text):
            yield part

    with pytest.raises(UpstreamError) as caught:
        await respond(mirror)
    assert caught.value.payload.code == "agent_recursion"
    assert str(caught.value).startswith("More than 8 agents wait for each other: mirror → mirror → ")


async def test_an_alias_falls_back_and_the_agents_response_says_so() -> None:
    @agent("best-of")
    async def best_of(turn: Turn) -> str:
        return (await turn.ask("best", "now")).text

    response = await respond(best_of)
    assert response.output_text == "now"
    [(code, message)] = warnings(response)
    assert code == "fallback"
    assert message.startswith("best: broken could not answer")


class CountingStore(MemoryStore):
    """A store that counts its responses."""

    responses = 0

    async def begin(self, *args: Any, **options: Any) -> IdempotencyRecord | None:
        self.responses += 1
        return await super().begin(*args, **options)


async def test_nothing_of_the_other_model_is_stored() -> None:
    store = CountingStore()
    await respond(router, store=store)
    assert store.responses == 1


async def test_sealed_reasoning_can_be_passed_on_and_sent_back() -> None:
    given: list[Reasoning] = []

    @agent("thinker")
    async def thinker(turn: Turn) -> AsyncIterator[object]:
        given.extend(item for item in turn.items if isinstance(item, Reasoning))
        yield parts.Reasoning("Hm. ", key="r")
        yield parts.Reasoning("Yes.", key="r")
        yield parts.Reasoning(key="r", encrypted_content="signature")
        yield "yes"

    @agent("passes-on")
    async def passes_on(turn: Turn) -> AsyncIterator[object]:
        given.extend(item for item in turn.items if isinstance(item, Reasoning))
        for model in ("thinker", "other"):
            answer = turn.ask(model, [*turn.items, user_message("Think!")])
            async for part in answer:
                yield part

    other = Agent("other", thinker.entries["__entry__"])
    engine = make_engine(passes_on, thinker, other)
    first = await (await engine.create_run(Request.from_message("passes-on", "x"))).execute()
    assert given == []
    request = Request.from_message("passes-on", "again", previous_response_id=first.id)
    await (await engine.create_run(request)).execute()
    texts = [[part.text for part in item.content or ()] for item in given]  # pyright: ignore
    signatures = [item.encrypted_content for item in given]
    # To the agent both are closed; each of the others can read its own.
    assert all(str(sealed).startswith("ant1_") for sealed in signatures[:2])
    assert signatures[2:] == ["signature", UNSET, UNSET, "signature"]
    assert texts == [["Hm. Yes."]] * 6


async def test_a_compactor_and_an_agent_without_one_can_ask() -> None:
    @agent("with")
    async def with_compactor(turn: Turn) -> None: ...

    @with_compactor.compactor
    async def summarize(items: Sequence[Item], turn: Turn) -> str:
        return (await turn.ask("echo", f"{len(items)} items")).text

    for asking in (with_compactor, router):
        engine = make_engine(asking)
        request = decode_compact({"model": asking.name, "input": "one two"})
        resource = await compact(engine, request)
        assert resource.output[-1].type == "compaction"
        assert resource.usage.total_tokens > 0


async def test_outside_of_a_server_ask_is_a_clear_error() -> None:
    request = Request.from_message("a", "hello")
    with pytest.raises(RuntimeError, match="a server runs"):
        Turn(request=request, input=request.input).ask("echo", "x")

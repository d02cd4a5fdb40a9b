"""Token counts of requests."""

from collections.abc import AsyncIterator

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.agents.demo import demo, echo
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.protocol.context import estimate_prompt
from antiphon.protocol.errors import RequestError
from antiphon.protocol.response import InputTokens, ResponseWarning
from antiphon.wire.openresponses import decode_request

pytestmark = pytest.mark.anyio


@agent("uncounted", window=30)
async def uncounted(turn: Turn) -> AsyncIterator[str]:
    """Counts nothing."""
    yield turn.text


ENGINE = Engine(Models([demo, echo, uncounted]))
TOOL = {"type": "function", "name": "look_up", "description": "Look up a word."}


async def count(**body: object) -> InputTokens:
    """Count the input tokens of a request, for `demo` by default."""
    return await ENGINE.count_input_tokens(decode_request({"model": "demo", **body}))


async def count_used(**body: object) -> int:
    """Return the input tokens of a response to the same request."""
    run = await ENGINE.create_run(decode_request({"model": "demo", **body}))
    usage = (await run.execute()).usage
    assert usage is not None
    return usage.input_tokens


@pytest.mark.parametrize("model", ["demo", "echo"])
async def test_the_count_of_the_model_is_returned(model: str) -> None:
    body = {"model": model, "input": "one two three", "instructions": "Be kind.", "tools": [TOOL]}
    assert await count(**body) == InputTokens(input_tokens=await count_used(**body))


async def test_the_count_equals_the_usage_of_the_response() -> None:
    first = await (await ENGINE.create_run(decode_request({"model": "demo", "input": "Hello!"}))).execute()
    body = {"input": "And now?", "previous_response_id": first.id}
    assert (await count(**body)).input_tokens == await count_used(**body) > 2


async def test_an_estimate_is_marked_as_one() -> None:
    request = decode_request({"model": "uncounted", "input": "Hello, wörld!", "tools": [TOOL]})
    assert await ENGINE.count_input_tokens(request) == InputTokens(
        input_tokens=estimate_prompt(None, request.tools, request.input),
        warnings=[
            ResponseWarning(
                code="usage_estimated",
                message="This model does not count tokens; this is an estimate.",
                param="input_tokens",
            )
        ],
    )


async def test_input_that_exceeds_the_window_is_counted_unless_it_would_be_truncated() -> None:
    messages = [{"role": "user", "content": "word " * 12} for _ in range(3)]
    whole = await count(model="uncounted", input=messages)
    assert whole.input_tokens == 3 * 19
    cut = await count(model="uncounted", input=messages, truncation="auto")
    assert cut.input_tokens == 19


async def test_an_agent_may_have_its_own_counter() -> None:
    @agent("counting")
    async def counting(turn: Turn) -> AsyncIterator[str]:
        yield turn.text

    @counting.counter
    def letters(turn: Turn) -> int:
        return len(turn.text)

    request = decode_request({"model": "counting", "input": "Hello!"})
    assert letters(Turn(request=request, input=request.input)) == 6
    assert await Engine(Models([counting])).count_input_tokens(request) == InputTokens(input_tokens=6)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": None, "input": "Hi"}, "model", "missing_required_parameter"),
        ({}, "input", "missing_required_parameter"),
        ({"model": "nobody", "input": "Hi"}, "model", "model_not_found"),
        ({"previous_response_id": "resp_9"}, "previous_response_id", "previous_response_not_found"),
        ({"input": "Hi", "conversation": "conv_9"}, "conversation", "conversation_not_found"),
    ],
)
async def test_a_request_that_is_invalid_for_a_response_is_rejected(
    body: dict[str, object], param: str, code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        await count(**body)
    payload = caught.value.payload
    assert (payload.param, payload.code) == (param, code)

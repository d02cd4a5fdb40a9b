"""The real openai-python's chat client against `demo`, at every door."""

import json
from collections.abc import Iterable

import pytest
from openai import (
    APIError,
    AsyncOpenAI,
    BadRequestError,
    InternalServerError,
    LengthFinishReasonError,
    NotFoundError,
    OpenAI,
    pydantic_function_tool,
)
from openai.types.chat import (
    ChatCompletionChunk,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
)
from pydantic import BaseModel

from tests.clients.openai_events import HELLO, WORDS

Messages = list[ChatCompletionMessageParam]
ASKED: Messages = [{"role": "user", "content": "Hello!"}]


class City(BaseModel):
    """A place that many people live in."""

    name: str
    population: int


class GetWeather(BaseModel):
    """Look out of a window somewhere."""

    location: str


def tool(name: str) -> ChatCompletionFunctionToolParam:
    """Make a tool that wants to know a place."""
    properties = {"location": {"type": "string"}}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Look somewhere.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": ["location"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }


WEATHER, CLOCK = tool("get_weather"), tool("read_clock")


def user_messages(text: str) -> Messages:
    """Return a chat of one message."""
    return [{"role": "user", "content": text}]


def function_calls(message: ChatCompletionMessage) -> list[ChatCompletionMessageFunctionToolCall]:
    """Return the calls of functions in a message."""
    calls = message.tool_calls or []
    return [c for c in calls if isinstance(c, ChatCompletionMessageFunctionToolCall)]


def content_deltas(chunks: Iterable[ChatCompletionChunk]) -> list[str]:
    """Return the words of some chunks."""
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    return [delta.content for delta in deltas if delta.content]


def test_create_returns_a_completion(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="demo", messages=ASKED)
    (choice,) = completion.choices
    assert (choice.message.role, choice.message.content) == ("assistant", HELLO)
    assert (choice.finish_reason, completion.model) == ("stop", "demo")
    assert completion.usage
    assert completion.usage.completion_tokens == len(WORDS)
    assert completion.usage.prompt_tokens_details
    assert completion.usage.prompt_tokens_details.cached_tokens == 0


def test_create_streams_word_by_word(client: OpenAI) -> None:
    with client.chat.completions.create(model="demo", messages=ASKED, stream=True) as stream:
        chunks = list(stream)
    assert content_deltas(chunks) == WORDS
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_is_streamed_if_requested(client: OpenAI) -> None:
    with client.chat.completions.create(
        model="demo", messages=ASKED, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = stream
    assert content_deltas(chunks) == WORDS
    assert last.choices == []
    assert last.usage
    assert last.usage.completion_tokens == len(WORDS)


def test_the_stream_helper_accumulates_the_same_completion(client: OpenAI) -> None:
    deltas: list[str] = []
    with client.chat.completions.stream(model="demo", messages=ASKED) as stream:
        for event in stream:
            if event.type == "content.delta":
                deltas.append(event.delta)
                assert event.snapshot == "".join(deltas)
        final = stream.get_final_completion()
    assert deltas == ["", *WORDS]
    assert final.choices[0].message.content == HELLO
    assert final.choices[0].finish_reason == "stop"


def test_a_conversation_continues(client: OpenAI) -> None:
    messages: Messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "My name is Alice."}]},
    ]
    first = client.chat.completions.create(model="demo", messages=messages)
    conversation: Messages = [
        *messages,
        first.choices[0].message.to_dict(),  # pyright: ignore[reportAssignmentType]
        {"role": "user", "content": "Who am I?"},
    ]
    second = client.chat.completions.create(model="demo", messages=conversation)
    content = second.choices[0].message.content
    assert content
    assert content.endswith("You said: Who am I? This conversation has 4 messages.")


def test_images_and_files_reach_the_model(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="demo",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look!"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                    {"type": "file", "file": {"file_data": "data:x;base64,AA", "filename": "a"}},
                ],
            }
        ],
    )
    content = completion.choices[0].message.content
    assert content
    assert content.endswith("You said: Look! I was shown 1 image. I was given 1 file.")


def test_reasoning_is_in_reasoning_content(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="demo", messages=ASKED, reasoning_effort="low")
    reasoning = (completion.choices[0].message.model_extra or {})["reasoning_content"]
    assert reasoning.startswith("The user said 1 words.")
    with client.chat.completions.create(model="demo", messages=ASKED, reasoning_effort="low", stream=True) as stream:
        deltas = [chunk.choices[0].delta.model_extra or {} for chunk in stream]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == reasoning
    conversation = completion.choices[0].message.to_dict()
    again: Messages = [*ASKED, conversation, *ASKED]  # pyright: ignore[reportAssignmentType]
    assert client.chat.completions.create(model="demo", messages=again).choices


def test_logprobs_are_returned(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="demo", messages=ASKED, logprobs=True, top_logprobs=1)
    probable = completion.choices[0].logprobs
    assert probable
    assert [token.token for token in probable.content or []] == WORDS
    assert [len(token.top_logprobs) for token in probable.content or []] == [1] * len(WORDS)
    with client.chat.completions.stream(model="demo", messages=ASKED, logprobs=True) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].logprobs
    assert [token.token for token in final.choices[0].logprobs.content or []] == WORDS


def test_a_refusal_is_returned(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="demo", messages=user_messages("REFUSE"))
    message = completion.choices[0].message
    assert (message.content, message.refusal) == (None, "I was asked to refuse, and so I do.")
    with client.chat.completions.stream(model="demo", messages=user_messages("REFUSE")) as stream:
        refused = [event.refusal for event in stream if event.type == "refusal.done"]
    assert refused == [message.refusal]


def test_a_token_limit_is_finish_reason_length(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="demo", messages=user_messages("Tell a story."), max_completion_tokens=5
    )
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content == "Once upon a time a"


def test_parse_returns_a_typed_answer(client: OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="demo", messages=user_messages("A city, please."), response_format=City
    )
    message = completion.choices[0].message
    assert isinstance(message.parsed, City)
    assert City.model_validate_json(message.content or "") == message.parsed


def test_the_stream_helper_parses(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="demo", messages=user_messages("A city, please."), response_format=City
    ) as stream:
        done = [event.parsed for event in stream if event.type == "content.done"]
        final = stream.get_final_completion()
    assert done == [final.choices[0].message.parsed]
    assert isinstance(done[0], City)


def test_incomplete_output_is_not_parsed(client: OpenAI) -> None:
    with pytest.raises(LengthFinishReasonError):
        client.chat.completions.parse(
            model="demo", messages=user_messages("A city."), response_format=City, max_tokens=1
        )


def test_json_mode_returns_an_object(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="demo", messages=user_messages("As JSON."), response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(completion.choices[0].message.content or ""), dict)


def test_a_complete_tool_loop(client: OpenAI) -> None:
    """Two calls at once, both answered, the outputs in another order than the calls."""
    messages = user_messages("USE_TOOLS")
    tools = [WEATHER, CLOCK]
    first = client.chat.completions.create(model="demo", messages=messages, tools=tools)
    (choice,) = first.choices
    calls = function_calls(choice.message)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [call.function.name for call in calls] == ["get_weather", "read_clock"]
    for call in calls:
        GetWeather.model_validate_json(call.function.arguments)
    messages.append(choice.message.to_dict())  # pyright: ignore[reportArgumentType]
    for call in reversed(calls):
        text = call.function.name.upper()
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    second = client.chat.completions.create(model="demo", messages=messages, tools=tools)
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content == ("read_clock says: READ_CLOCK\nget_weather says: GET_WEATHER")


def test_streamed_calls_are_assembled_by_index(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="demo", messages=user_messages("USE_TOOLS"), tools=[WEATHER, CLOCK]
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.index, event.name) for event in done] == [(0, "get_weather"), (1, "read_clock")]
    calls = final.choices[0].message.tool_calls or []
    assert [call.function.arguments for call in calls] == [event.arguments for event in done]
    assert len({call.id for call in calls}) == 2
    assert final.choices[0].finish_reason == "tool_calls"


def test_parse_returns_typed_arguments(client: OpenAI) -> None:
    typed = pydantic_function_tool(GetWeather, name="get_weather")
    completion = client.chat.completions.parse(model="demo", messages=user_messages("The weather?"), tools=[typed])
    (call,) = completion.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_tool_choices_are_obeyed(client: OpenAI) -> None:
    create, tools = client.chat.completions.create, [WEATHER, CLOCK]
    named = create(
        model="demo", messages=ASKED, tools=tools, tool_choice={"type": "function", "function": {"name": "read_clock"}}
    )
    assert [call.function.name for call in function_calls(named.choices[0].message)] == ["read_clock"]
    allowed = create(
        model="demo",
        messages=ASKED,
        tools=tools,
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "read_clock"}}]},
        },
    )
    assert [call.function.name for call in function_calls(allowed.choices[0].message)] == ["read_clock"]
    none = create(model="demo", messages=user_messages("The weather?"), tools=tools, tool_choice="none")
    assert none.choices[0].message.tool_calls is None
    one = create(model="demo", messages=user_messages("USE_TOOLS"), tools=tools, parallel_tool_calls=False)
    assert len(function_calls(one.choices[0].message)) == 1


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=ASKED)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_an_invalid_message_is_a_bad_request(client: OpenAI) -> None:
    unpaired: Messages = [*ASKED, {"role": "tool", "tool_call_id": "x", "content": "Done."}]
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=unpaired)
    assert caught.value.param == "messages[1].tool_call_id"


def test_a_failing_model_is_a_server_error(client: OpenAI) -> None:
    with pytest.raises(InternalServerError):
        client.chat.completions.create(model="demo", messages=user_messages("FAIL"))
    stream = client.chat.completions.create(model="demo", messages=user_messages("FAIL"), stream=True)
    with stream:
        heard = [next(stream) for _ in range(5)]
        with pytest.raises(APIError, match="failed while answering") as caught:
            next(stream)
    assert content_deltas(heard) == WORDS[:4]
    assert caught.value.code == "server_error"


@pytest.mark.anyio
async def test_the_async_client(async_client: AsyncOpenAI) -> None:
    completion = await async_client.chat.completions.create(model="demo", messages=ASKED)
    assert completion.choices[0].message.content == HELLO
    stream = await async_client.chat.completions.create(model="demo", messages=ASKED, stream=True)
    async with stream:
        assert content_deltas([chunk async for chunk in stream]) == WORDS
    async with async_client.chat.completions.stream(
        model="demo", messages=user_messages("A city."), response_format=City
    ) as helper:
        final = await helper.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, City)

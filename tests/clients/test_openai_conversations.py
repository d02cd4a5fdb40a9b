"""The real openai-python against `demo`, in conversations."""

import pytest
from openai import AsyncOpenAI, BadRequestError, ConflictError, NotFoundError, OpenAI
from openai.types.conversations import ConversationItem, Message
from openai.types.responses import (
    FunctionToolParam,
    ResponseFunctionToolCall,
    ResponseInputImage,
    ResponseInputText,
    ResponseOutputText,
)

GONE = "conv_" + "0" * 48
WEATHER = FunctionToolParam(type="function", name="get_weather", parameters={"type": "object"}, strict=False)


def text_of(item: ConversationItem) -> str:
    """Return the text of a message of one part."""
    assert isinstance(item, Message)
    (part,) = item.content
    assert isinstance(part, ResponseInputText | ResponseOutputText)
    return part.text


def test_a_conversation_is_created_changed_and_deleted(client: OpenAI) -> None:
    created = client.conversations.create(metadata={"topic": "weather"})
    assert (created.object, created.metadata) == ("conversation", {"topic": "weather"})
    assert client.conversations.retrieve(created.id) == created
    changed = client.conversations.update(created.id, metadata={"topic": "love"})
    assert changed == created.model_copy(update={"metadata": {"topic": "love"}})
    gone = client.conversations.delete(created.id)
    assert (gone.id, gone.object, gone.deleted) == (created.id, "conversation.deleted", True)
    for id in (created.id, GONE, "nonsense"):
        with pytest.raises(NotFoundError) as caught:
            client.conversations.retrieve(id)
        assert (caught.value.code, caught.value.param) == ("conversation_not_found", "conversation_id")
    assert client.conversations.create().metadata == {}


def test_items_are_added_read_and_deleted(client: OpenAI) -> None:
    id = client.conversations.create(items=[{"role": "user", "content": "One."}]).id
    image = "data:image/png;base64,AA=="
    added = client.conversations.items.create(
        id,
        items=[
            {"role": "user", "content": [{"type": "input_image", "image_url": image, "detail": "low"}]},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        ],
        include=["message.input_image.image_url"],
    )
    assert (added.object, added.has_more, len(added.data)) == ("list", False, 2)
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[1].id)
    picture, call = added.data
    assert isinstance(picture, Message)
    assert picture.status == "completed"
    assert picture.content == [ResponseInputImage(type="input_image", image_url=image, detail="low")]
    assert call.type == "function_call"
    for item in added.data:
        assert client.conversations.items.retrieve(str(item.id), conversation_id=id) == item
    rest = client.conversations.items.delete(added.first_id, conversation_id=id)
    assert rest == client.conversations.retrieve(id)
    with pytest.raises(NotFoundError) as caught:
        client.conversations.items.retrieve(added.first_id, conversation_id=id)
    assert (caught.value.code, caught.value.param) == ("item_not_found", "item_id")
    with pytest.raises(BadRequestError) as refused:
        client.conversations.items.create(id, items=[])
    assert refused.value.param == "items"


def test_items_are_paginated_in_both_orders(client: OpenAI) -> None:
    words = [f"Number {n}." for n in range(7)]
    id = client.conversations.create(items=[{"role": "user", "content": word} for word in words]).id
    items = client.conversations.items
    for limit in (1, 3, 7, 100):
        up = list(items.list(id, limit=limit, order="asc"))
        assert [text_of(item) for item in up] == words
        assert list(items.list(id, limit=limit, order="desc")) == up[::-1]
    assert list(items.list(client.conversations.create().id)) == []


def test_responses_join_their_conversation(client: OpenAI) -> None:
    id = client.conversations.create().id
    first = client.responses.create(model="demo", input="I am Alice.", conversation=id)
    assert first.conversation
    assert first.conversation.id == id
    with client.responses.stream(model="demo", input="Who am I?", conversation={"id": id}) as stream:
        second = stream.get_final_response()
    assert second.output_text.endswith("You said: Who am I? This conversation has 3 messages.")
    texts = [text_of(item) for item in client.conversations.items.list(id, order="asc")]
    assert texts == ["I am Alice.", first.output_text, "Who am I?", second.output_text]


def test_tools_are_called_in_a_conversation(client: OpenAI) -> None:
    id = client.conversations.create().id
    calling = client.responses.create(model="demo", input="The weather?", tools=[WEATHER], conversation=id)
    (call,) = calling.output
    assert isinstance(call, ResponseFunctionToolCall)
    answer = client.responses.create(
        model="demo",
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}],
        tools=[WEATHER],
        conversation=id,
    )
    assert answer.output_text == "get_weather says: Rain."
    types = [item.type for item in client.conversations.items.list(id, order="asc")]
    assert types == ["message", "function_call", "function_call_output", "message"]


def test_a_conversation_allows_one_response_at_a_time(client: OpenAI) -> None:
    id = client.conversations.create().id
    slow = client.responses.create(model="demo", input="SLOW", conversation=id, background=True)
    with pytest.raises(ConflictError) as caught:
        client.responses.create(model="demo", input="Hello!", conversation=id)
    assert (caught.value.code, caught.value.param) == ("conversation_busy", "conversation")
    assert caught.value.response.headers["retry-after"] == "1"
    client.responses.cancel(slow.id)
    assert list(client.conversations.items.list(id)) == []
    client.responses.create(model="demo", input="Hello!", conversation=id)


def test_a_client_retries_while_a_conversation_is_busy(openai: OpenAI) -> None:
    # openai-python tries a 409 again, after as long as Retry-After says.
    id = openai.conversations.create().id
    slow = openai.responses.create(model="demo", input="SLOW", conversation=id, background=True)
    patient = openai.with_options(max_retries=5)
    answer = patient.responses.create(model="demo", input="At last!", conversation=id)
    assert answer.output_text.endswith("You said: At last! This conversation has 3 messages.")
    assert openai.responses.retrieve(slow.id).status == "completed"


def test_a_conversation_excludes_other_parameters(client: OpenAI) -> None:
    id = client.conversations.create().id
    with pytest.raises(NotFoundError) as unknown:
        client.responses.create(model="demo", input="Hello!", conversation=GONE)
    assert (unknown.value.code, unknown.value.param) == ("conversation_not_found", "conversation")
    with pytest.raises(BadRequestError) as unstored:
        client.responses.create(model="demo", input="Hello!", conversation=id, store=False)
    assert unstored.value.code == "store_required"
    with pytest.raises(BadRequestError) as both:
        client.responses.create(model="demo", input="Hello!", conversation=id, previous_response_id="resp_1")
    assert both.value.code == "mutually_exclusive_parameters"


@pytest.mark.anyio
async def test_async_conversations(async_client: AsyncOpenAI) -> None:
    conversations = async_client.conversations
    id = (await conversations.create(items=[{"role": "user", "content": "One."}])).id
    answer = await async_client.responses.create(model="demo", input="Two.", conversation=id)
    items = [item async for item in conversations.items.list(id, limit=1, order="asc")]
    assert [text_of(item) for item in items] == ["One.", "Two.", answer.output_text]
    await conversations.items.delete(str(items[0].id), conversation_id=id)
    await conversations.update(id, metadata={"topic": "numbers"})
    assert (await conversations.retrieve(id)).metadata == {"topic": "numbers"}
    assert (await conversations.delete(id)).deleted

"""openai-python compacts conversations, and counts tokens."""

from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import ResponseCompactionItem, ResponseInputParam

MESSAGES: ResponseInputParam = [
    {"role": "user", "content": "Our ship is called the Aurora."},
    {"role": "assistant", "content": "A fine name for a ship."},
]


def test_a_compacted_conversation_continues(client: OpenAI) -> None:
    compacted = client.responses.compact(model="demo", input=MESSAGES, instructions="Be brief.")
    assert compacted.object == "response.compaction"
    message, sealed = compacted.output
    assert message.type == "message"
    assert isinstance(sealed, ResponseCompactionItem)
    assert compacted.usage.total_tokens == compacted.usage.input_tokens + compacted.usage.output_tokens
    # openai-python has no model of a user's message in an output, and warns as it writes one.
    output: Any = compacted.to_dict(warnings=False)["output"]
    again: ResponseInputParam = [*output, {"role": "user", "content": "And now?"}]
    answer = client.responses.create(model="demo", input=again, store=False)
    assert answer.output_text.endswith("You said: And now? This conversation has 3 messages.")


def test_a_chain_can_be_compacted(client: OpenAI) -> None:
    first = client.responses.create(model="echo", input="Our ship is called the Aurora.")
    compacted = client.responses.compact(model="demo", previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]


def test_an_unknown_chain_cannot_be_compacted(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.responses.compact(model="demo", previous_response_id="resp_" + "0" * 48)
    assert caught.value.code == "previous_response_not_found"


def test_input_tokens_are_counted(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="demo", input="one two three", instructions="Be kind.")
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 5)
    spent = client.responses.create(model="demo", input="one two three", instructions="Be kind.")
    assert spent.usage is not None
    assert spent.usage.input_tokens == counted.input_tokens


def test_encrypted_reasoning_can_be_sent_back(client: OpenAI) -> None:
    first = client.responses.create(
        model="demo", input="Hello!", reasoning={"effort": "low"}, include=["reasoning.encrypted_content"], store=False
    )
    again: ResponseInputParam = [
        *first.output,  # pyright: ignore - models are dumped by the client
        {"role": "user", "content": "And now?"},
    ]
    answer = client.responses.create(model="demo", input=again, store=False)
    assert answer.status == "completed"

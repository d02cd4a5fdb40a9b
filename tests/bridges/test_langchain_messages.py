"""Items as LangChain's messages, and its messages as parts."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from antiphon.agents.turn import Turn
from antiphon.bridges.langchain_messages import MessageReader, encode_conversation
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCallOutput, UrlCitation
from antiphon.protocol.parts import Part
from antiphon.wire.openresponses import decode_request


def encode(*items: dict[str, Any], **body: Any) -> list[BaseMessage]:
    """Encode the input of a request."""
    request = decode_request({"model": "m", "input": list(items), **body})
    return encode_conversation(Turn(request=request, input=request.input), skipped="interrupt_")


def say(role: str, *content: dict[str, Any] | str) -> dict[str, Any]:
    """Return a message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": [{"type": kind, "text": c} if isinstance(c, str) else c for c in content]}


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    """Return a call."""
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments}


def output(call_id: str, value: object) -> dict[str, Any]:
    """Return an output."""
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def test_a_conversation_has_every_role_and_its_calls() -> None:
    messages = encode(
        say("developer", "Be kind."),
        say("user", "Look!"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        say("assistant", "I look."),
        call("c1", '{"where": "up"}'),
        call("c2", "nonsense"),
        output("c2", "nothing"),
        output("c1", "the sky"),
        call("interrupt_1"),
        output("interrupt_1", "yes"),
        say("assistant", "The sky."),
        instructions="Be brief.",
    )
    assert [(type(message), message.text) for message in messages] == [
        (SystemMessage, "Be brief."),
        (SystemMessage, "Be kind."),
        (HumanMessage, "Look!"),
        (AIMessage, "I look."),
        (ToolMessage, "the sky"),
        (ToolMessage, "nothing"),
        (AIMessage, "The sky."),
    ]
    calls = messages[3]
    assert isinstance(calls, AIMessage)
    assert [(one["id"], one["name"], one["args"]) for one in calls.tool_calls] == [
        ("c1", "look", {"where": "up"}),
        ("c2", "look", {"arguments": "nonsense"}),
    ]
    assert len({message.id for message in messages}) == len(messages)


def test_a_call_without_an_output_gets_one() -> None:
    _, tool_message, _ = encode(call("c1"), say("user", "Well?"))
    assert tool_message.text == "No output was given for this call."


def test_images_and_files_are_blocks() -> None:
    image = "data:image/png;base64,aGk="
    [message] = encode(
        say(
            "user",
            "See:",
            {"type": "input_image", "image_url": image, "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
            {"type": "input_file", "file_url": "https://example.com/b.pdf"},
        )
    )
    assert message.content == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": image, "detail": "low"}},
        {"type": "file", "mime_type": "application/pdf", "base64": "aGk=", "filename": "a.pdf"},
        {"type": "file", "mime_type": "application/pdf", "url": "https://example.com/b.pdf"},
    ]


def test_an_image_without_an_address_is_an_error() -> None:
    with pytest.raises(RequestError, match="This 'input_image' cannot be sent to the agent"):
        encode(say("user", {"type": "input_image", "file_id": "file_1"}))


def read(*messages: BaseMessage) -> list[Part]:
    """Read messages that come from one node."""
    reader = MessageReader()
    return [part for message in messages for part in reader.read(message, "node")] + [*reader.end()]


def chunk(text: str, id: str, *, last: bool = False) -> AIMessageChunk:
    """Return a piece of a message."""
    return AIMessageChunk(content=text, id=id, chunk_position="last" if last else None)


def test_the_pieces_of_a_message_wait_while_another_is_streamed() -> None:
    assert read(
        chunk("a1", "a"), chunk("b1", "b"), chunk("a2", "a"), chunk("b2", "b", last=True), chunk("a3", "a", last=True)
    ) == [parts.Text(text, key=text[0]) for text in ("a1", "a2", "a3", "b1", "b2")]
    # A message that never ends hides nothing.
    assert read(chunk("a1", "a"), chunk("b1", "b")) == [parts.Text("a1", key="a"), parts.Text("b1", key="b")]


def test_blocks_of_text_have_reasoning_and_citations() -> None:
    content: list[str | dict[str, Any]] = [
        {"type": "reasoning", "reasoning": "Hm.", "index": 0},
        {
            "type": "text",
            "text": "Oslo.",
            "index": 1,
            "annotations": [{"type": "citation", "url": "https://no", "title": "No", "start_index": 0, "end_index": 4}],
        },
    ]
    assert read(AIMessage(content=content, id="a")) == [
        parts.Reasoning("Hm.", key="a/0"),
        parts.Text("Oslo.", key="a/1"),
        parts.Annotation(UrlCitation(url="https://no", start_index=0, end_index=4, title="No"), key="a/1"),
    ]


def test_reasoning_beside_the_content_is_reasoning() -> None:
    thinking = AIMessageChunk(content="", id="a", additional_kwargs={"reasoning_content": "Hm."})
    assert read(thinking) == [parts.Reasoning("Hm.", key="a")]


def test_an_output_of_an_unknown_call_is_left_out() -> None:
    assert read(ToolMessage("found", tool_call_id="c9")) == []
    calling = AIMessage("", id="a", tool_calls=[{"name": "look", "args": {}, "id": "c1", "type": "tool_call"}])
    assert read(calling, ToolMessage("found", tool_call_id="c1"), ToolMessage("again", tool_call_id="c1")) == [
        parts.Call("a/c1", "look", "{}", "c1", complete=True),
        parts.Whole(FunctionCallOutput(call_id="c1", output="found")),
    ]

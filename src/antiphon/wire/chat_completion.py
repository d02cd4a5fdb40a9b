"""A response as a chat sees it: one message, why it ended, and what it took.

- Messages are joined by a blank line, and so are the pieces of thinking; parts of one message not.
- `reasoning_content` is an item's raw thinking or, if it told none, its summary.
- A call is shown if it is the client's to make. Calls of functions that the client did not offer
  are an agent's own affair: they are shown only if nothing has answered them in the end.
- Whatever else a response may hold (hosted tools, compactions, extensions) has no place in a chat.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from antiphon.core.content import Content, LogProb, OutputText, Refusal, UrlCitation, text_of
from antiphon.core.items import (
    CUSTOM_CALL,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.core.response import Response, Usage
from antiphon.core.value import plain
from antiphon.wire.chat_request import Chat

BREAK = "\n\n"
"""What stands between two messages, and between two pieces of thinking."""

Json = dict[str, object]

FINISHES = {"max_output_tokens": "length", "content_filter": "content_filter", "cancelled": "stop"}
"""What chat calls the reason why a response is not complete."""


def completion_id(response: Response) -> str:
    """Return the id of the completion that a response is.

    >>> completion_id(Response(id="resp_0a1b", created_at=0, model="m"))
    'chatcmpl-0a1b'
    """
    return "chatcmpl-" + response.id.rpartition("_")[2]


def completion(response: Response, asked: Chat) -> Json:
    """Return a response as the completion that it is."""
    said = message(response, asked.offered)
    choice: Json = {
        "index": 0,
        "message": said,
        "logprobs": logprobs(response.output),
        "finish_reason": finish_reason(response, called="tool_calls" in said),
    }
    whole: Json = {
        "id": completion_id(response),
        "object": "chat.completion",
        "created": response.created_at,
        "model": response.model,
        "choices": [choice],
    }
    if response.usage:
        whole["usage"] = usage(response.usage)
    return whole | beside(response, asked)


def message(response: Response, offered: frozenset[str]) -> Json:
    """Return everything that a response says as one message."""
    output = response.output
    spoken = [_joined(item.content, OutputText) for item in _messages(output)]
    refused = [_joined(item.content, Refusal) for item in _messages(output)]
    thought = [text for item in output if isinstance(item, Reasoning) for text in thinking(item)]
    calls = [*offered_calls(output, offered), *other_calls(output, offered)]
    content, refusal = BREAK.join(filter(None, spoken)), BREAK.join(filter(None, refused))
    said: Json = {"role": "assistant", "content": content, "refusal": refusal or None}
    if not content and (refusal or calls):
        said["content"] = None
    if reasoning := BREAK.join(thought):
        said["reasoning_content"] = reasoning
    if calls:
        said["tool_calls"] = [call_of(item) for item in calls]
    said["annotations"] = annotations(output)
    return said


def thinking(item: Reasoning) -> list[str]:
    """Return the pieces of an item's thinking that a chat shows."""
    raw = [text for part in item.content or () if (text := text_of(part))]
    return raw or [text for part in item.summary if (text := text_of(part))]


def offered_calls(output: Iterable[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls that are the client's to make."""
    return (item for item in output if is_offered(item, offered))


def other_calls(output: Sequence[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls of what the client did not offer and nobody answered."""
    answered = {item.call_id for item in output if isinstance(item, FunctionCallOutput)}
    for item in output:
        theirs = isinstance(item, FunctionCall) and item.call_id not in answered
        if theirs and not is_offered(item, offered):
            yield item


def is_offered(item: Item, offered: frozenset[str]) -> bool:
    """Tell whether an item is a call that the client can make."""
    if isinstance(item, FunctionCall):
        return item.name in offered
    return isinstance(item, ExtensionItem) and item.type == CUSTOM_CALL


def call_of(item: Item) -> Json:
    """Return a call as a chat writes it."""
    if isinstance(item, FunctionCall):
        function = {"name": item.name, "arguments": item.arguments}
        return {"id": item.call_id, "type": "function", "function": function}
    get = item.get
    custom = {"name": get("name", ""), "input": get("input", "")}
    return {"id": get("call_id", ""), "type": "custom", "custom": custom}


def annotations(output: Iterable[Item]) -> list[Json]:
    """Return the pages that the answer cites, with their place in the whole of it."""
    notes: list[Json] = []
    length = 0
    for item in _messages(output):
        texts = [part for part in item.content if isinstance(part, OutputText)]
        if length and any(part.text for part in texts):
            length += len(BREAK)
        for part in texts:
            notes += [_citation(n, length) for n in part.annotations if isinstance(n, UrlCitation)]
            length += len(part.text)
    return notes


def _citation(note: UrlCitation, offset: int) -> Json:
    place = {"start_index": note.start_index + offset, "end_index": note.end_index + offset}
    citation = {**place, "title": note.title, "url": note.url}
    return {"type": "url_citation", "url_citation": citation}


def logprobs(output: Iterable[Item]) -> Json | None:
    """Return how probable each token was, if anyone has counted."""
    counted: list[LogProb] = []
    for item in _messages(output):
        for part in item.content:
            if isinstance(part, OutputText) and part.logprobs:
                counted += part.logprobs
    return {"content": plain(counted), "refusal": None} if counted else None


def finish_reason(response: Response, *, called: bool) -> str:
    """Return why the answer ended."""
    if details := response.incomplete_details:
        return FINISHES.get(details.reason, "length")
    return "tool_calls" if called else "stop"


def usage(counted: Usage) -> Json:
    """Return the tokens that an answer took."""
    read, written = counted.input_tokens_details, counted.output_tokens_details
    return {
        "prompt_tokens": counted.input_tokens,
        "completion_tokens": counted.output_tokens,
        "total_tokens": counted.total_tokens,
        "prompt_tokens_details": plain(read),
        "completion_tokens_details": plain(written),
    }


def beside(response: Response, asked: Chat) -> Json:
    """Return what stands beside the choices, once it is known; warnings name chat's params."""
    told: Json = {"service_tier": response.service_tier}
    warnings = [
        *asked.warnings,
        *(
            replace(warning, param=asked.place(warning.param)) if warning.param else warning
            for warning in response.warnings or ()
        ),
    ]
    if warnings:
        told["antiphon:warnings"] = plain(warnings)
    return told


def _messages(output: Iterable[Item]) -> Iterator[Message]:
    return (item for item in output if isinstance(item, Message))


def _joined(content: Iterable[Content], kind: type[OutputText] | type[Refusal]) -> str:
    return "".join(text_of(part) for part in content if isinstance(part, kind))

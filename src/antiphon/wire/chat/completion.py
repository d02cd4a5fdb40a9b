"""A response as a chat sees it: one message, why it ended, and what it took.

- Messages are joined by a blank line, and so are the pieces of thinking; parts of one message not.
- `reasoning_content` is an item's raw thinking or, if it told none, its summary.
- A call is shown if it is the client's to make. Calls of functions that the client did not offer
  are an agent's own affair: they are shown only if nothing has answered them in the end.
- Whatever else a response may hold (hosted tools, compactions, extensions) has no place in a chat.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from antiphon.protocol.content import (
    Content,
    LogProb,
    OutputText,
    RefusalContent,
    UrlCitation,
    content_text,
)
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.struct import to_builtins
from antiphon.wire.chat.request import ChatRequest

SEPARATOR = "\n\n"
"""What stands between two messages, and between two pieces of thinking."""

Json = dict[str, object]

FINISH_REASONS = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "stop",
}
"""What chat calls the reason why a response is not complete."""


def completion_id(response: Response) -> str:
    """Return the id of the completion that a response is.

    >>> completion_id(Response(id="resp_0a1b", created_at=0, model="m"))
    'chatcmpl-0a1b'
    """
    return "chatcmpl-" + response.id.rpartition("_")[2]


def encode_completion(response: Response, request: ChatRequest) -> Json:
    """Return a response as the completion that it is."""
    said = encode_message(response, request.offered_functions)
    choice: Json = {
        "index": 0,
        "message": said,
        "logprobs": encode_logprobs(response.output),
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
        whole["usage"] = encode_usage(response.usage)
    return whole | extra_fields(response, request)


def encode_message(response: Response, offered: frozenset[str]) -> Json:
    """Return everything that a response says as one message."""
    output = response.output
    spoken = [_join_texts(item.content, OutputText) for item in _messages(output)]
    refused = [_join_texts(item.content, RefusalContent) for item in _messages(output)]
    thought = [
        text for item in output if isinstance(item, Reasoning) for text in reasoning_texts(item)
    ]
    calls = [*client_calls(output, offered), *unanswered_calls(output, offered)]
    content, refusal = SEPARATOR.join(filter(None, spoken)), SEPARATOR.join(filter(None, refused))
    said: Json = {"role": "assistant", "content": content, "refusal": refusal or None}
    if not content and (refusal or calls):
        said["content"] = None
    if reasoning := SEPARATOR.join(thought):
        said["reasoning_content"] = reasoning
    if calls:
        said["tool_calls"] = [encode_call(item) for item in calls]
    said["annotations"] = encode_annotations(output)
    return said


def reasoning_texts(item: Reasoning) -> list[str]:
    """Return the pieces of an item's thinking that a chat shows."""
    raw = [text for part in item.content or () if (text := content_text(part))]
    return raw or [text for part in item.summary if (text := content_text(part))]


def client_calls(output: Iterable[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls that are the client's to make."""
    return (item for item in output if is_client_call(item, offered))


def unanswered_calls(output: Sequence[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls of what the client did not offer and nobody answered."""
    answered = {item.call_id for item in output if isinstance(item, FunctionCallOutput)}
    for item in output:
        theirs = isinstance(item, FunctionCall) and item.call_id not in answered
        if theirs and not is_client_call(item, offered):
            yield item


def is_client_call(item: Item, offered: frozenset[str]) -> bool:
    """Tell whether an item is a call that the client can make."""
    if isinstance(item, FunctionCall):
        return item.name in offered
    return isinstance(item, ExtensionItem) and item.type == CUSTOM_TOOL_CALL


def encode_call(item: Item) -> Json:
    """Return a call as a chat writes it."""
    if isinstance(item, FunctionCall):
        function = {"name": item.name, "arguments": item.arguments}
        return {"id": item.call_id, "type": "function", "function": function}
    get = item.get
    custom = {"name": get("name", ""), "input": get("input", "")}
    return {"id": get("call_id", ""), "type": "custom", "custom": custom}


def encode_annotations(output: Iterable[Item]) -> list[Json]:
    """Return the pages that the answer cites, with their place in the whole of it."""
    notes: list[Json] = []
    length = 0
    for item in _messages(output):
        texts = [part for part in item.content if isinstance(part, OutputText)]
        if length and any(part.text for part in texts):
            length += len(SEPARATOR)
        for part in texts:
            notes += [
                _encode_citation(n, length) for n in part.annotations if isinstance(n, UrlCitation)
            ]
            length += len(part.text)
    return notes


def _encode_citation(note: UrlCitation, offset: int) -> Json:
    place = {"start_index": note.start_index + offset, "end_index": note.end_index + offset}
    citation = {**place, "title": note.title, "url": note.url}
    return {"type": "url_citation", "url_citation": citation}


def encode_logprobs(output: Iterable[Item]) -> Json | None:
    """Return how probable each token was, if anyone has counted."""
    counted: list[LogProb] = []
    for item in _messages(output):
        for part in item.content:
            if isinstance(part, OutputText) and part.logprobs:
                counted += part.logprobs
    return {"content": to_builtins(counted), "refusal": None} if counted else None


def finish_reason(response: Response, *, called: bool) -> str:
    """Return why the answer ended."""
    if details := response.incomplete_details:
        return FINISH_REASONS.get(details.reason, "length")
    return "tool_calls" if called else "stop"


def encode_usage(counted: ResponseUsage) -> Json:
    """Return the tokens that an answer took."""
    read, written = counted.input_tokens_details, counted.output_tokens_details
    return {
        "prompt_tokens": counted.input_tokens,
        "completion_tokens": counted.output_tokens,
        "total_tokens": counted.total_tokens,
        "prompt_tokens_details": to_builtins(read),
        "completion_tokens_details": to_builtins(written),
    }


def extra_fields(response: Response, request: ChatRequest) -> Json:
    """Return what stands beside the choices, once it is known; warnings name chat's params."""
    told: Json = {"service_tier": response.service_tier}
    warnings = [
        *request.warnings,
        *(
            replace(warning, param=request.param_name(warning.param)) if warning.param else warning
            for warning in response.warnings or ()
        ),
    ]
    if warnings:
        told["antiphon:warnings"] = to_builtins(warnings)
    return told


def _messages(output: Iterable[Item]) -> Iterator[Message]:
    return (item for item in output if isinstance(item, Message))


def _join_texts(content: Iterable[Content], kind: type[OutputText] | type[RefusalContent]) -> str:
    return "".join(content_text(part) for part in content if isinstance(part, kind))

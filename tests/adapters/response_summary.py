"""Summaries of our server's responses, streamed and not, after they were validated."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.http_client import event_types, parse_stream, post_response
from tests.spec.schema_checks import check_event, check_response


@dataclass(frozen=True)
class ResponseSummary:
    """The output of a model: each item as its type, its status and its text."""

    items: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    status: str = "completed"
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class ErrorSummary:
    """An error response; `after` is its `Retry-After` header."""

    status: int
    type: str
    message: str
    after: str | None = None


def message_summary(text: str, status: str = "completed") -> tuple[object, ...]:
    """Describe a message."""
    return ("message", status, text)


def call_summary(name: str, arguments: object, status: str = "completed") -> tuple[object, ...]:
    """Describe a call; arguments that are no JSON are described as they were written."""
    return ("function_call", status, name, arguments)


def reasoning_summary(text: str) -> tuple[object, ...]:
    """Describe reasoning, raw or summed up."""
    return ("reasoning", None, text)


def post_and_summarize(address: str, **body: Any) -> ResponseSummary | ErrorSummary:
    """Ask for a response, and judge everything about it."""
    answer = post_response(address, **body)
    if answer.status_code != 200:
        return summarize_error(answer)
    return summarize_response(final_response(answer) if body.get("stream") else validate_response(answer.json()))


def summarize_error(answer: httpx.Response) -> ErrorSummary:
    """Read an answer that is an error."""
    error = answer.json()["error"]
    after = answer.headers.get("retry-after")
    return ErrorSummary(answer.status_code, error["type"], error["message"], after)


def final_response(answer: httpx.Response) -> dict[str, Any]:
    """Judge a stream, and return the response that it ends with."""
    events = parse_stream(answer.text)
    for event in events:
        check_event(event)
    assert find_violations(decode_event(event) for event in events) == []
    last = events[-1]["response"]
    assert event_types(events)[-1] == f"response.{last['status']}"
    return last


def validate_response(response: dict[str, Any]) -> dict[str, Any]:
    """Judge a whole response."""
    check_response(response)
    return response


def summarize_response(response: dict[str, Any]) -> ResponseSummary:
    """Return the summary of a response."""
    details, error = response["incomplete_details"], response["error"]
    items = [describe_item(item) for item in response["output"]]
    return ResponseSummary(items, response["status"], details and details["reason"], error and error["code"])


def describe_item(item: dict[str, Any]) -> tuple[object, ...]:
    """Return the summary of an item."""
    match item["type"]:
        case "message":
            return message_summary("".join(part["text"] for part in item["content"]), item["status"])
        case "function_call":
            return call_summary(item["name"], parse_or_text(item["arguments"]), item["status"])
        case _:
            words = [part["text"] for part in [*item.get("content", []), *item["summary"]]]
            return reasoning_summary("".join(words))


def parse_or_text(arguments: str) -> object:
    """Read the arguments of a call, as far as they can be read."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments

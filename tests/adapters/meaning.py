"""What an answer of our server means, streamed or not, once it has been found to be legal."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from antiphon.core.events import decode_event
from antiphon.core.judge import judge
from tests.asking import ask, events_of, types
from tests.spec.oracle import check_event, check_response


@dataclass(frozen=True)
class Said:
    """What a model has said: each item as its type, its status and its words."""

    items: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    status: str = "completed"
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Refused:
    """An answer that is an error; `after` is what it says about trying again."""

    status: int
    type: str
    message: str
    after: str | None = None


def message(text: str, status: str = "completed") -> tuple[object, ...]:
    """Describe a message."""
    return ("message", status, text)


def called(name: str, arguments: object, status: str = "completed") -> tuple[object, ...]:
    """Describe a call; arguments that are no JSON are described as they were written."""
    return ("function_call", status, name, arguments)


def thought(text: str) -> tuple[object, ...]:
    """Describe reasoning, raw or summed up."""
    return ("reasoning", None, text)


def said(address: str, **body: Any) -> Said | Refused:
    """Ask for a response, and judge everything about it."""
    answer = ask(address, **body)
    if answer.status_code != 200:
        return refused(answer)
    return meaning(final(answer) if body.get("stream") else checked(answer.json()))


def refused(answer: httpx.Response) -> Refused:
    """Read an answer that is an error."""
    error = answer.json()["error"]
    after = answer.headers.get("retry-after")
    return Refused(answer.status_code, error["type"], error["message"], after)


def final(answer: httpx.Response) -> dict[str, Any]:
    """Judge a stream, and return the response that it ends with."""
    events = events_of(answer.text)
    for event in events:
        check_event(event)
    assert judge(decode_event(event) for event in events) == []
    last = events[-1]["response"]
    assert types(events)[-1] == f"response.{last['status']}"
    return last


def checked(response: dict[str, Any]) -> dict[str, Any]:
    """Judge a whole response."""
    check_response(response)
    return response


def meaning(response: dict[str, Any]) -> Said:
    """Say what a response means."""
    details, error = response["incomplete_details"], response["error"]
    items = [described(item) for item in response["output"]]
    return Said(items, response["status"], details and details["reason"], error and error["code"])


def described(item: dict[str, Any]) -> tuple[object, ...]:
    """Say what an item means."""
    match item["type"]:
        case "message":
            return message("".join(part["text"] for part in item["content"]), item["status"])
        case "function_call":
            return called(item["name"], parsed(item["arguments"]), item["status"])
        case _:
            words = [part["text"] for part in [*item.get("content", []), *item["summary"]]]
            return thought("".join(words))


def parsed(arguments: str) -> object:
    """Read the arguments of a call, as far as they can be read."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments

"""Foreign streams checked: every rule is raised by its name, OpenAI's dialect breaks none."""

import json
from typing import Any

import pytest

from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.foreign.lenient import LenientReader
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.rules import RULES
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire import sse
from antiphon.wire.openresponses import Dialect, OpenAIDialect
from tests.protocol.broken_streams import (
    FAILED,
    KNOWN_MISTAKES,
    LEGAL,
    NO_OUTPUT,
    PARALLEL_CALLS,
    RULE_BREAKS,
    TRUNCATED,
    to_raw,
)
from tests.protocol.builders import event_types
from tests.protocol.foreign.read_stream import make_reader, read_stream

LEGAL_STREAMS = [LEGAL, PARALLEL_CALLS, NO_OUTPUT, TRUNCATED, FAILED]


def encode_stream(events: list[Event], dialect: Dialect) -> list[dict[str, Any]]:
    """Return a stream as a dialect encodes it."""
    body = b"".join(dialect.encode_sse(event) for event in events)
    return [json.loads(frame.data) for frame in sse.Decoder().feed(body)]


@pytest.mark.parametrize("events", LEGAL_STREAMS)
def test_openais_dialect_breaks_no_rule(events: list[Event]):
    events_read, reader = read_stream(encode_stream(events, OpenAIDialect()), strict=True)
    assert event_types(events_read) == event_types(events)
    assert reader.response is not None
    assert reader.response.output == fold(events).output


@pytest.mark.parametrize("rule", RULE_BREAKS)
def test_a_strict_reader_raises_each_broken_rule_by_its_name(rule: str):
    with pytest.raises(RemoteProtocolError) as caught:
        read_stream(RULE_BREAKS[rule], strict=True)
    assert RULES[rule] in str(caught.value)
    assert str(caught.value).endswith(f"[{rule}]")


def test_a_strict_reader_requires_a_slug_of_unknown_events():
    events = to_raw(LEGAL)
    at = event_types(LEGAL).index("acme:tick")
    events[at]["type"] = "response.tick"
    with pytest.raises(RemoteProtocolError, match=r"'response.tick' is neither. \[event-type\]$"):
        read_stream(events, strict=True)
    assert event_types(read_stream(events)[0])[at] == "response.tick"


@pytest.mark.parametrize("mistake", KNOWN_MISTAKES)
def test_a_strict_reader_rejects_known_mistakes_of_other_servers(mistake: str):
    events, rules = KNOWN_MISTAKES[mistake]
    with pytest.raises(RemoteProtocolError) as caught:
        read_stream(events, strict=True)
    assert str(caught.value).rpartition("[")[2].rstrip("]") in rules


def test_a_strict_reader_rejects_a_gap_in_a_resumed_stream():
    with pytest.raises(RemoteProtocolError, match=r"\[sequence-gapless\]"):
        read_stream(to_raw(LEGAL)[8:], strict=True, after=5)


def test_the_rule_that_a_delta_breaks_is_raised_at_that_delta():
    events = RULE_BREAKS["part-order"]
    places = [at for at, event in enumerate(events) if event["type"].endswith("output_text.delta")]
    reader = make_reader(strict=True)
    for event in events[: places[-1]]:
        reader.feed(event)
    with pytest.raises(RemoteProtocolError, match="part-order"):
        reader.feed(events[places[-1]])


def test_problems_are_collected_once_for_each_rule():
    checker = ForeignChecker(strict=False)
    reader = make_reader(checker=checker)
    for event in to_raw(LEGAL):
        reader.feed(event | {"sequence_number": 7})
    assert len(checker.problems) == 2
    assert checker.problems[0].endswith("[sequence-gapless]")
    assert checker.problems[1].endswith("[sequence-increases]")
    assert checker.summary() == " ".join(checker.problems)


def test_an_event_of_the_wrong_shape_ends_the_check():
    checker = ForeignChecker(strict=False)
    reader = make_reader(checker=checker)
    reader.feed({"type": "response.output_item.done", "sequence_number": 0})
    reader.feed({"type": "response.created", "sequence_number": 1})
    reader.close()
    (problem,) = checker.problems
    assert problem.startswith("event 0 (response.output_item.done) has the wrong shape: ")


TOLERATED = {
    "a name of its own": {"type": "odd", "text": "Hi"},
    "annotations": {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation"}, 3]},
    "log probabilities": {"type": "output_text", "text": "Hi", "logprobs": [{"token": "Hi"}]},
}


@pytest.mark.parametrize("name", TOLERATED)
@pytest.mark.parametrize("usage", [{"input_tokens": 1}, None])
def test_what_servers_may_do_differently_breaks_no_rule(name: str, usage: dict[str, Any] | None):
    message = {
        "type": "message",
        "id": "msg_0",
        "role": "assistant",
        "status": "completed",
        "content": [TOLERATED[name]],
    }
    response = to_raw(NO_OUTPUT)[-1]["response"] | {"output": [message], "usage": usage, "text": "plain"}
    misfits: list[InvalidValueError] = []
    read = LenientReader("acme:", misfits).read_response(response, "response")
    ForeignChecker(strict=True).check_response(response, read, misfits)
    assert bool(misfits) == (name != "a name of its own" or usage is not None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"arguments": {"a": 1}}, "item.arguments: expected a string"),
        ({"name": None}, "item.name: this field is required"),
        ({"call_id": 3}, "item.call_id: expected a string of 1 to 64 characters, got 3"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(changes: dict[str, Any], reason: str):
    call = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "f", "arguments": ""} | changes
    added = {"type": "response.output_item.added", "sequence_number": 0, "output_index": 0, "item": call}
    with pytest.raises(RemoteProtocolError) as caught:
        make_reader(strict=True).feed(added)
    assert str(caught.value) == f"event 0 (response.output_item.added) has the wrong shape: {reason} [shape]"

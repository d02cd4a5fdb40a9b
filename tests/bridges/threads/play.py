"""Plays thread events to a builder whose ids and times are known beforehand."""

from collections.abc import Iterable

from antiphon.bridges.stream import BridgeStream
from antiphon.bridges.threads import (
    AgentMessageItem,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    OpenResponsesConfig,
    ReasoningItem,
    ResponseBuilder,
    ThreadEvent,
    ThreadItem,
)
from antiphon.bridges.threads.config import EVERYTHING
from antiphon.bridges.threads.normalized import NormalizedEvent
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from tests.protocol.builders import LATER, counting_ids


def make_builder(config: OpenResponsesConfig = EVERYTHING, *, whole_thread: bool = False) -> ResponseBuilder:
    """Make a builder that counts its ids: resp_0, msg_0, msg_1 …"""
    stream = BridgeStream("gpt-5", ids=counting_ids(), clock=lambda: float(LATER))
    return ResponseBuilder("gpt-5", config, whole_thread=whole_thread, stream=stream)


def play(
    *thread: ThreadEvent, config: OpenResponsesConfig = EVERYTHING, whole_thread: bool = False
) -> tuple[list[Event], ResponseBuilder]:
    """Return the events that thread events cause, and the builder."""
    builder, events = make_builder(config, whole_thread=whole_thread), list[Event]()
    for event in thread:
        builder.process_event(event, events.append)
    return events, builder


def play_normalized(*stream: NormalizedEvent, config: OpenResponsesConfig = EVERYTHING) -> tuple[list[Event], Response]:
    """Return the events that the events of a provider cause, and the response."""
    builder, events = make_builder(config), list[Event]()
    for event in stream:
        builder.process_normalized_event(event, events.append)
    return events, builder.response()


def output_of(*thread: ThreadEvent) -> list[Item]:
    """Return the output that thread events build."""
    return play(*thread)[1].response().output


def complete(*shown: ThreadItem) -> list[ThreadEvent]:
    """Return the events of items that are shown only once they are complete."""
    return [ItemCompleted(item=item) for item in shown]


def grow(*shown: ThreadItem) -> list[ThreadEvent]:
    """Return the events of one item that begins, changes and is complete."""
    first, *between, last = shown
    return [ItemStarted(item=first), *(ItemUpdated(item=item) for item in between), ItemCompleted(item=last)]


def messages(id: str, *texts: str) -> list[AgentMessageItem]:
    """Return a message of the agent as it is shown while it grows."""
    return [AgentMessageItem(id=id, text=text) for text in texts]


def thoughts(id: str, *texts: str) -> list[ReasoningItem]:
    """Return reasoning as it is shown while it grows."""
    return [ReasoningItem(id=id, text=text) for text in texts]


def check_stream(events: Iterable[Event], response: Response) -> None:
    """Check that a whole stream is legal and describes the response."""
    stream = list(events)
    assert find_violations(stream) == []
    assert fold(stream) == response

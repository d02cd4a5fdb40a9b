"""What a `Client` gives out: streams, conversations and sockets for code that does not await."""

from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from antiphon.client.conversations import Conversation, Conversations
from antiphon.client.fields import Input, Order
from antiphon.client.stream import Stream
from antiphon.core.events import Event, OutputTextDelta
from antiphon.core.items import Item
from antiphon.core.response import Response

if TYPE_CHECKING:
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentRun
    from antiphon.client.agent.told import AgentEvent
    from antiphon.client.messages import TurnFields
    from antiphon.client.portal import Portal
    from antiphon.client.socket import Lane, Session


class SyncStream:
    """A response as it is told.

    Nothing is asked before the stream is entered or read. Leaving it early stops the request:

        with client.stream(model="demo", input="Hi!") as stream:
            for event in stream:            # typed events, one by one
                ...
            print(stream.response)          # the response as far as it is known, at any time

        for text in client.stream(model="demo", input="Hi!").text:
            print(text, end="")

        response = client.stream(model="demo", input="Hi!").final()
    """

    def __init__(self, portal: "Portal", stream: Stream) -> None:
        self._portal = portal
        self._stream = stream
        self._ready: deque[Event] = deque()
        self._entered = False

    def __repr__(self) -> str:
        return f"<Sync{repr(self._stream)[1:]}"

    def __enter__(self) -> "SyncStream":
        self._entered = True
        self._portal.run(self._stream.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Give the events one by one. Outside `with`, leaving the loop early closes the stream."""
        ready = self._ready
        try:
            while True:
                while ready:
                    yield ready.popleft()
                ready.extend(self._portal.run(self._stream.batch()))
                if not ready:
                    return
        finally:
            self._left()

    def batches(self) -> Iterator[list[Event]]:
        """Give the events in lists, as many at a time as have come."""
        try:
            while batch := [*self._ready] or self._portal.run(self._stream.batch()):
                self._ready.clear()
                yield batch
        finally:
            self._left()

    @property
    def text(self) -> Iterator[str]:
        """The text as it grows, piece by piece."""
        return (event.delta for event in self if type(event) is OutputTextDelta)

    @property
    def response(self) -> Response:
        """The response as far as it is known, also after an error; raises AntiphonError before."""
        return self._stream.response

    def final(self) -> Response:
        """Read to the end and return the response; its status may be failed or incomplete."""
        self._ready.clear()
        return self._portal.run(self._stream.final())

    def close(self) -> None:
        """Listen no more. Before the end, that closes the connection."""
        self._ready.clear()
        self._portal.run(self._stream.close())

    def _left(self) -> None:
        if not self._entered:
            self.close()


class SyncAgentRun:
    """One run of an agent; iterate it for its events, once."""

    def __init__(self, portal: "Portal", run: "AgentRun") -> None:
        self._portal = portal
        self._run = run

    def __repr__(self) -> str:
        return f"<Sync{repr(self._run)[1:]}"

    @property
    def result(self) -> "AgentResult | None":
        """What came of it, when it is over."""
        return self._run.result

    def __iter__(self) -> "Iterator[AgentEvent]":
        """Give the events as they happen; leaving the loop early stops the run."""
        events = aiter(self._run)
        try:
            yield from self._portal.each(events)
        finally:
            self._portal.run(events.aclose())


class SyncConversations:
    """The conversations of one server, as `client.conversations`."""

    def __init__(self, portal: "Portal", conversations: Conversations) -> None:
        self._portal = portal
        self._conversations = conversations

    def create(
        self, *, items: Input = (), metadata: Mapping[str, str] | None = None
    ) -> Conversation:
        """Begin a conversation, with items in it or without."""
        return self._portal.run(self._conversations.create(items=items, metadata=metadata))

    def retrieve(self, id: str) -> Conversation:
        """Return a conversation."""
        return self._portal.run(self._conversations.retrieve(id))

    def update(self, id: str, *, metadata: Mapping[str, str]) -> Conversation:
        """Note something else about a conversation."""
        return self._portal.run(self._conversations.update(id, metadata=metadata))

    def delete(self, id: str) -> None:
        """Delete a conversation, and keep the responses that were made in it."""
        self._portal.run(self._conversations.delete(id))

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Iterator[Item]:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        pages = self._conversations.pages(id, order=order, after=after)
        return (item for page in self._portal.each(pages) for item in page)

    def add(self, id: str, items: Input) -> list[Item]:
        """Add items to a conversation; return them as they are kept, with ids."""
        return self._portal.run(self._conversations.add(id, items))

    def delete_item(self, id: str, item_id: str) -> Conversation:
        """Take an item out of a conversation."""
        return self._portal.run(self._conversations.delete_item(id, item_id))


class SyncLane:
    """A named sequence of turns on a session."""

    def __init__(self, portal: "Portal", lane: "Lane") -> None:
        self.name = lane.name
        self._portal = portal
        self._lane = lane

    def stream(self, **fields: "Unpack[TurnFields]") -> SyncStream:
        """Ask for a response when the turns before it are over, and hear it as it is told."""
        return SyncStream(self._portal, self._lane.stream(**fields))


class SyncSession:
    """One WebSocket, and the lanes on it."""

    def __init__(self, portal: "Portal", session: "Session") -> None:
        self._portal = portal
        self._session = session

    def __enter__(self) -> "SyncSession":
        self._portal.run(self._session.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it has come to its end, by whomever."""
        return self._session.closed

    def stream(self, *, lane: str | None = None, **fields: "Unpack[TurnFields]") -> SyncStream:
        """Ask for a response, and hear it as it is told; named lanes do not wait for others."""
        return SyncStream(self._portal, self._session.stream(lane=lane, **fields))

    def lane(self, name: str) -> SyncLane:
        """Return a lane, whose turns wait for each other and for nothing else."""
        return SyncLane(self._portal, self._session.lane(name))

    def close(self) -> None:
        """Close the socket."""
        self._portal.run(self._session.close())

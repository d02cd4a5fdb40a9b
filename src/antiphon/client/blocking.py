"""What a `Client` gives out: streams, conversations and sockets for code that does not await.

Each stands before its asynchronous twin, which says what its methods do.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from antiphon.client.conversations import Conversations
from antiphon.client.fields import Order
from antiphon.client.stream import Stream
from antiphon.core.events import Event, OutputTextDelta
from antiphon.core.items import Item
from antiphon.core.response import Response

if TYPE_CHECKING:
    from antiphon.client.agent.events import AgentEvent
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentRun
    from antiphon.client.messages import TurnFields
    from antiphon.client.portal import Portal
    from antiphon.client.socket import Lane, Session


A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Generic[A]):
    """Something asynchronous, for code that does not await."""

    def __init__(self, portal: "Portal", twin: A) -> None:
        self.portal = portal
        self.twin = twin

    def __repr__(self) -> str:
        return f"<Sync{repr(self.twin)[1:]}"


def waits(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """Make a method that waits of one that is awaited."""

    @wraps(method)
    def wait(self: Blocking[A], *args: P.args, **named: P.kwargs) -> T:
        return self.portal.run(method(self.twin, *args, **named))

    return wait


class SyncStream(Blocking[Stream]):
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
        super().__init__(portal, stream)
        self._ready: deque[Event] = deque()
        self._entered = False

    def __enter__(self) -> "SyncStream":
        self._entered = True
        self.portal.run(self.twin.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Give the events one by one. Outside `with`, leaving the loop early closes the stream."""
        ready = self._ready
        try:
            while True:
                while ready:
                    yield ready.popleft()
                ready.extend(self.portal.run(self.twin.batch()))
                if not ready:
                    return
        finally:
            self._left()

    def batches(self) -> Iterator[list[Event]]:
        """Give the events in lists, as many at a time as have come."""
        try:
            while batch := [*self._ready] or self.portal.run(self.twin.batch()):
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
        return self.twin.response

    def final(self) -> Response:
        """Read to the end and return the response; its status may be failed or incomplete."""
        self._ready.clear()
        return self.portal.run(self.twin.final())

    def close(self) -> None:
        """Listen no more. Before the end, that closes the connection."""
        self._ready.clear()
        self.portal.run(self.twin.close())

    def _left(self) -> None:
        if not self._entered:
            self.close()


class SyncAgentRun(Blocking["AgentRun"]):
    """One run of an agent; iterate it for its events, once."""

    def __init__(self, portal: "Portal", twin: "AgentRun") -> None:
        super().__init__(portal, twin)

    @property
    def result(self) -> "AgentResult | None":
        """What came of it, when it is over."""
        return self.twin.result

    def __iter__(self) -> "Iterator[AgentEvent]":
        """Give the events as they happen; leaving the loop early stops the run."""
        batches = self.twin.batches()
        try:
            for batch in self.portal.each(batches):
                yield from batch
        finally:
            self.portal.run(batches.aclose())


class SyncConversations(Blocking[Conversations]):
    """The conversations of one server, as `client.conversations`."""

    create = waits(Conversations.create)
    retrieve = waits(Conversations.retrieve)
    update = waits(Conversations.update)
    delete = waits(Conversations.delete)
    add = waits(Conversations.add)
    delete_item = waits(Conversations.delete_item)

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Iterator[Item]:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        items = self.twin.items(id, order=order, after=after)
        return (item for page in self.portal.each(items.pages()) for item in page)


class SyncLane(Blocking["Lane"]):
    """A named sequence of turns on a session."""

    def __init__(self, portal: "Portal", twin: "Lane") -> None:
        super().__init__(portal, twin)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.twin.name

    def stream(self, **fields: "Unpack[TurnFields]") -> SyncStream:
        """Ask for a response when the turns before it are over, and hear it as it is told."""
        return SyncStream(self.portal, self.twin.stream(**fields))


class SyncSession(Blocking["Session"]):
    """One WebSocket, and the lanes on it."""

    def __init__(self, portal: "Portal", twin: "Session") -> None:
        super().__init__(portal, twin)

    def __enter__(self) -> "SyncSession":
        self.portal.run(self.twin.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it has come to its end, by whomever."""
        return self.twin.closed

    def stream(self, *, lane: str | None = None, **fields: "Unpack[TurnFields]") -> SyncStream:
        """Ask for a response, and hear it as it is told; named lanes do not wait for others."""
        return SyncStream(self.portal, self.twin.stream(lane=lane, **fields))

    def lane(self, name: str) -> SyncLane:
        """Return a lane, whose turns wait for each other and for nothing else."""
        return SyncLane(self.portal, self.twin.lane(name))

    def close(self) -> None:
        """Close the socket."""
        self.portal.run(self.twin.close())

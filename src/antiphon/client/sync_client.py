"""What a `Client` gives out: streams, conversations and sockets for code that does not await.

Each stands before its asynchronous twin, which says what its methods do.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from antiphon.client.async_client import AsyncClient
from antiphon.client.conversations import ConversationsApi
from antiphon.client.params import Order, ResponseParams
from antiphon.client.stream import Stream
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

if TYPE_CHECKING:
    from antiphon.client.agent.events import AgentEvent
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentRun
    from antiphon.client.portal import EventLoopThread
    from antiphon.client.websocket import Lane, Session, TurnParams


A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class SyncWrapper(Generic[A]):
    """Something asynchronous, for code that does not await."""

    def __init__(self, portal: "EventLoopThread", wrapped: A) -> None:
        self.portal = portal
        self.wrapped = wrapped

    def __repr__(self) -> str:
        return f"<Sync{repr(self.wrapped)[1:]}"


def make_sync(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncWrapper[A], P], T]:
    """Make a method that waits of one that is awaited."""

    @wraps(method)
    def wait(self: SyncWrapper[A], *args: P.args, **named: P.kwargs) -> T:
        return self.portal.run(method(self.wrapped, *args, **named))

    return wait


class SyncStream(SyncWrapper[Stream]):
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

    def __init__(self, portal: "EventLoopThread", stream: Stream) -> None:
        super().__init__(portal, stream)
        self._pending: deque[Event] = deque()
        self._entered = False

    def __enter__(self) -> "SyncStream":
        self._entered = True
        self.portal.run(self.wrapped.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Give the events one by one. Outside `with`, leaving the loop early closes the stream."""
        ready = self._pending
        try:
            while True:
                while ready:
                    yield ready.popleft()
                ready.extend(self.portal.run(self.wrapped.next_batch()))
                if not ready:
                    return
        finally:
            self._close_unless_entered()

    def batches(self) -> Iterator[list[Event]]:
        """Give the events in lists, as many at a time as have come."""
        try:
            while batch := [*self._pending] or self.portal.run(self.wrapped.next_batch()):
                self._pending.clear()
                yield batch
        finally:
            self._close_unless_entered()

    @property
    def text(self) -> Iterator[str]:
        """The text as it grows, piece by piece."""
        return (event.delta for event in self if type(event) is OutputTextDelta)

    @property
    def response(self) -> Response:
        """The response as far as it is known, also after an error; raises AntiphonError before."""
        return self.wrapped.response

    def final(self) -> Response:
        """Read to the end and return the response; its status may be failed or incomplete."""
        self._pending.clear()
        return self.portal.run(self.wrapped.final())

    def close(self) -> None:
        """Listen no more. Before the end, that closes the connection."""
        self._pending.clear()
        self.portal.run(self.wrapped.close())

    def _close_unless_entered(self) -> None:
        if not self._entered:
            self.close()


class SyncAgentRun(SyncWrapper["AgentRun"]):
    """One run of an agent; iterate it for its events, once."""

    def __init__(self, portal: "EventLoopThread", wrapped: "AgentRun") -> None:
        super().__init__(portal, wrapped)

    @property
    def result(self) -> "AgentResult | None":
        """What came of it, when it is over."""
        return self.wrapped.result

    def __iter__(self) -> "Iterator[AgentEvent]":
        """Give the events as they happen; leaving the loop early stops the run."""
        batches = self.wrapped.batches()
        try:
            for batch in self.portal.iterate(batches):
                yield from batch
        finally:
            self.portal.run(batches.aclose())


class SyncConversationsApi(SyncWrapper[ConversationsApi]):
    """The conversations of one server, as `client.conversations`."""

    create = make_sync(ConversationsApi.create)
    retrieve = make_sync(ConversationsApi.retrieve)
    update = make_sync(ConversationsApi.update)
    delete = make_sync(ConversationsApi.delete)
    add = make_sync(ConversationsApi.add)
    delete_item = make_sync(ConversationsApi.delete_item)

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Iterator[Item]:
        """Give the items of a conversation, the oldest first; pages are read as needed."""
        items = self.wrapped.items(id, order=order, after=after)
        return (item for page in self.portal.iterate(items.pages()) for item in page)


class SyncLane(SyncWrapper["Lane"]):
    """A named sequence of turns on a session."""

    def __init__(self, portal: "EventLoopThread", wrapped: "Lane") -> None:
        super().__init__(portal, wrapped)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.wrapped.name

    def stream(self, **fields: "Unpack[TurnParams]") -> SyncStream:
        """Ask for a response when the turns before it are over, and hear it as it is told."""
        return SyncStream(self.portal, self.wrapped.stream(**fields))


class SyncSession(SyncWrapper["Session"]):
    """One WebSocket, and the lanes on it."""

    def __init__(self, portal: "EventLoopThread", wrapped: "Session") -> None:
        super().__init__(portal, wrapped)

    def __enter__(self) -> "SyncSession":
        self.portal.run(self.wrapped.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it has come to its end, by whomever."""
        return self.wrapped.closed

    def stream(self, *, lane: str | None = None, **fields: "Unpack[TurnParams]") -> SyncStream:
        """Ask for a response, and hear it as it is told; named lanes do not wait for others."""
        return SyncStream(self.portal, self.wrapped.stream(lane=lane, **fields))

    def lane(self, name: str) -> SyncLane:
        """Return a lane, whose turns wait for each other and for nothing else."""
        return SyncLane(self.portal, self.wrapped.lane(name))

    def close(self) -> None:
        """Close the socket."""
        self.portal.run(self.wrapped.close())


if TYPE_CHECKING:
    from antiphon.client.agent.run import AgentParams
    from antiphon.transport.client import Transport
    from antiphon.transport.connection import Timeouts


class Client(SyncWrapper[AsyncClient]):
    """A client of one Open Responses server, for code that does not await.

        with Client("http://127.0.0.1:8000/v1") as client:
            print(client.create(model="demo", input="Hi!").output_text)

            for text in client.stream(model="demo", input="Hi!").text:
                print(text, end="")

    It needs no loop of the caller's, works where one is running, and may be shared by threads.
    What its arguments and its methods mean, and what they raise, is said at `AsyncClient`. An
    agent's `on_event`, and its functions that are async, are called in the client's own thread.
    """

    def __init__(  # noqa: PLR0913 - what a caller may choose
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: "float | Timeouts | None" = None,
        retries: int = 2,
        strict: bool = False,
        transport: "Transport | None" = None,
    ) -> None:
        from antiphon.client.portal import EventLoopThread

        twin = AsyncClient(
            base_url,
            api_key=api_key,
            headers=headers,
            timeout=timeout,
            retries=retries,
            strict=strict,
            transport=transport,
        )
        super().__init__(EventLoopThread(), twin)
        self.conversations = SyncConversationsApi(self.portal, self.wrapped.conversations)
        """The conversations that the server keeps."""

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self.wrapped.base_url

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the client's own thread."""
        self.portal.run(self.wrapped.close())
        self.portal.close()

    create = make_sync(AsyncClient.create)
    run_agent = make_sync(AsyncClient.run_agent)
    input_tokens = make_sync(AsyncClient.input_tokens)
    compact = make_sync(AsyncClient.compact)
    retrieve = make_sync(AsyncClient.retrieve)
    cancel = make_sync(AsyncClient.cancel)
    delete = make_sync(AsyncClient.delete)
    models = make_sync(AsyncClient.models)

    def stream(self, **fields: Unpack[ResponseParams]) -> SyncStream:
        """Ask for a response, and hear it as it is told."""
        return SyncStream(self.portal, self.wrapped.stream(**fields))

    def stream_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> SyncAgentRun:
        """Run an agent, and iterate over everything that happens; see `antiphon.stream_agent`."""
        return SyncAgentRun(self.portal, self.wrapped.stream_agent(prompt, **params))

    def resume(self, id: str, *, starting_after: int | None = None) -> SyncStream:
        """Hear a background response from its beginning, or after the event of a number."""
        return SyncStream(self.portal, self.wrapped.resume(id, starting_after=starting_after))

    def input_items(
        self,
        id: str,
        *,
        order: Order = "asc",
        after: str | None = None,
        include: Sequence[str] = (),
    ) -> Iterator[Item]:
        """Give the items that a response was made from, the oldest first; pages as needed."""
        items = self.wrapped.input_items(id, order=order, after=after, include=include)
        return (item for page in self.portal.iterate(items.pages()) for item in page)

    def connect(self) -> SyncSession:
        """Open a WebSocket for many responses: `with client.connect() as session`."""
        return SyncSession(self.portal, self.wrapped.connect())

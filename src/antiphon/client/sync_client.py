"""`Client`: the methods of `AsyncClient` for code without async/await.

Everything runs in an event loop in a thread of the client's own. Events cross to the caller in
batches; a slow caller slows down the server and does not fill the memory. Each class here wraps
its asynchronous counterpart, which documents the methods.
"""

import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from antiphon.client.async_client import AsyncClient
from antiphon.client.conversations import ConversationsApi
from antiphon.client.params import Order, ResponseParams
from antiphon.client.stream import Stream
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

if TYPE_CHECKING:
    import asyncio

    from antiphon.client.agent.events import AgentEvent
    from antiphon.client.agent.loop import AgentResult

    # Ruff does not see that AgentRun, Lane and Session are used: as strings, in base classes.
    from antiphon.client.agent.run import AgentParams, AgentRun  # noqa: F401
    from antiphon.client.websocket import Lane, Session, TurnParams  # noqa: F401
    from antiphon.transport.client import Transport
    from antiphon.transport.connection import Timeouts

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", AsyncClient, Stream, "Session")


class LoopThread:
    """An event loop in a daemon thread, started on first use.

    anyio's blocking portal would serve too, but takes twice the CPU per call and survives neither
    a fork nor a SystemExit in the loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: weakref.finalize[..., LoopThread] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result. Ctrl-C cancels it."""
        import asyncio  # start-up time

        loop = self._ensure_started()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise AntiphonError("This is the client's own thread. Use AsyncClient here.")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()  # no effect unless the wait was interrupted

    def iterate(self, batches: AsyncIterator[list[T]]) -> Iterator[T]:
        """Yield the values of an asynchronous iterator of batches, none of them empty."""
        while batch := self.run(_next_batch(batches)):
            yield from batch

    def close(self) -> None:
        """Cancel everything in the loop and end the thread."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._loop = self._finalizer = None

    def _ensure_started(self) -> "asyncio.AbstractEventLoop":
        import asyncio  # start-up time

        # Threads may share a client: only one of them may start the loop.
        with self._lock:
            # A fork copies no threads: in the child the thread is dead, and a new one starts.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                # A daemon: a client that was not closed must not keep the program running.
                self._thread = threading.Thread(
                    target=_run_loop, args=[self._loop], name="antiphon-client", daemon=True
                )
                self._thread.start()
                self._finalizer = weakref.finalize(self, _stop_loop, self._loop, self._thread)
                # Functions registered with atexit may still use the client.
                self._finalizer.atexit = False
            return self._loop


async def _next_batch(batches: AsyncIterator[list[T]]) -> list[T]:
    return await anext(batches, list[T]())


def _run_loop(loop: "asyncio.AbstractEventLoop") -> None:
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            # Raised by a tool. asyncio passes them to the waiting caller and also ends the
            # loop, which other callers still need.
            continue
        return


def _stop_loop(loop: "asyncio.AbstractEventLoop", thread: threading.Thread) -> None:
    import asyncio  # start-up time

    if not thread.is_alive():
        return  # after a fork: the loop is the parent's
    if thread is threading.current_thread():
        # The client was garbage-collected in its own thread, which cannot join itself.
        threading.Thread(target=_stop_loop, args=[loop, thread]).start()
        return

    async def cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_asyncgens()

    # Tasks are cancelled first, so that connections are closed and no warning is printed.
    asyncio.run_coroutine_threadsafe(cancel_all(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class SyncWrapper(Generic[A]):
    """An asynchronous object, wrapped for code without async/await."""

    def __init__(self, loop_thread: LoopThread, wrapped: A) -> None:
        self.loop_thread = loop_thread
        self.wrapped = wrapped

    def __repr__(self) -> str:
        return f"<Sync{repr(self.wrapped)[1:]}"


class SyncResource(SyncWrapper[R]):
    """A wrapped object that is closed at the end of `with`."""

    def __enter__(self) -> Self:
        self.loop_thread.run(self.wrapped.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, as its asynchronous counterpart does."""
        self.loop_thread.run(self.wrapped.close())


def make_sync(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncWrapper[A], P], T]:
    """Return a blocking version of an asynchronous method."""

    @wraps(method)
    def call(self: SyncWrapper[A], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop_thread.run(method(self.wrapped, *args, **kwargs))

    return call


class SyncStream(SyncResource[Stream]):
    """A streamed response.

    The request is sent when the stream is entered or first read. Leaving early cancels it:

        with client.stream(model="demo", input="Hi!") as stream:
            for event in stream:            # typed events, one by one
                ...
            print(stream.response)          # the response as far as it is known, at any time
    """

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one. Outside `with`, leaving the loop closes the stream."""
        stream, pending = self.wrapped, self.wrapped.pending
        try:
            # Read in batches: each change of threads costs about 30 µs.
            while pending or self.loop_thread.run(stream.read_more()):
                yield pending.popleft()
        finally:
            if not stream.entered:
                self.close()

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events in lists, as many at a time as have arrived."""
        stream = self.wrapped
        try:
            while batch := self.loop_thread.run(stream.next_batch()):
                yield batch
        finally:
            if not stream.entered:
                self.close()

    @property
    def text(self) -> Iterator[str]:
        """The text, delta by delta."""
        return (event.delta for event in self if type(event) is OutputTextDelta)

    @property
    def response(self) -> Response:
        """The response as far as it is known, also after an error; raises AntiphonError before the first event."""
        return self.wrapped.response

    final = make_sync(Stream.final)


class SyncAgentRun(SyncWrapper["AgentRun"]):
    """One run of an agent; iterate it once for its events."""

    @property
    def result(self) -> "AgentResult | None":
        """The result, once the run has ended."""
        return self.wrapped.result

    def __iter__(self) -> "Iterator[AgentEvent]":
        """Yield the events as they happen; leaving the loop early stops the run."""
        # Closed explicitly: a generator dropped in this thread would be closed by the loop later.
        batches = self.wrapped.batches()
        try:
            yield from self.loop_thread.iterate(batches)
        finally:
            self.loop_thread.run(batches.aclose())


class SyncConversationsApi(SyncWrapper[ConversationsApi]):
    """The conversations of one server, as `client.conversations`."""

    create = make_sync(ConversationsApi.create)
    retrieve = make_sync(ConversationsApi.retrieve)
    update = make_sync(ConversationsApi.update)
    delete = make_sync(ConversationsApi.delete)
    add = make_sync(ConversationsApi.add)
    delete_item = make_sync(ConversationsApi.delete_item)

    def items(self, id: str, *, order: Order = "asc", after: str | None = None) -> Iterator[Item]:
        """Yield the items of a conversation, the oldest first; pages are read as needed."""
        return self.loop_thread.iterate(self.wrapped.items(id, order=order, after=after).pages())


class SyncLane(SyncWrapper["Lane"]):
    """A named sequence of turns in a session."""

    @property
    def name(self) -> str:
        return self.wrapped.name

    def stream(self, **params: "Unpack[TurnParams]") -> SyncStream:
        """Create a response after the lane's earlier turns and stream its events."""
        return SyncStream(self.loop_thread, self.wrapped.stream(**params))


class SyncSession(SyncResource["Session"]):
    """One WebSocket and its lanes."""

    @property
    def closed(self) -> bool:
        """Whether either side has closed it."""
        return self.wrapped.closed

    def stream(self, *, lane: str | None = None, **params: "Unpack[TurnParams]") -> SyncStream:
        """Create a response and stream its events; lanes do not wait for each other."""
        return SyncStream(self.loop_thread, self.wrapped.stream(lane=lane, **params))

    def lane(self, name: str) -> SyncLane:
        """Return a lane by its name."""
        return SyncLane(self.loop_thread, self.wrapped.lane(name))


class Client(SyncResource[AsyncClient]):
    """A client of one Open Responses server, for code without async/await.

        with Client("http://127.0.0.1:8000/v1") as client:
            print(client.create(model="demo", input="Hi!").output_text)

            for text in client.stream(model="demo", input="Hi!").text:
                print(text, end="")

    It works with and without a running event loop, and threads may share it. `AsyncClient` documents the arguments,
    methods and exceptions. `on_event` and the async tools of an agent run in the client's own thread.
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
        wrapped = AsyncClient(
            base_url,
            api_key=api_key,
            headers=headers,
            timeout=timeout,
            retries=retries,
            strict=strict,
            transport=transport,
        )
        super().__init__(LoopThread(), wrapped)
        self.conversations = SyncConversationsApi(self.loop_thread, wrapped.conversations)
        """The conversations that the server stores."""

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    @property
    def base_url(self) -> str:
        """The URL above `/responses`."""
        return self.wrapped.base_url

    def __enter__(self) -> Self:
        return self  # the thread starts with the first request

    def close(self) -> None:
        """Close all connections and end the client's thread."""
        super().close()
        self.loop_thread.close()

    create = make_sync(AsyncClient.create)
    run_agent = make_sync(AsyncClient.run_agent)
    input_tokens = make_sync(AsyncClient.input_tokens)
    compact = make_sync(AsyncClient.compact)
    retrieve = make_sync(AsyncClient.retrieve)
    cancel = make_sync(AsyncClient.cancel)
    delete = make_sync(AsyncClient.delete)
    models = make_sync(AsyncClient.models)

    def stream(self, **params: Unpack[ResponseParams]) -> SyncStream:
        """Create a response and stream its events."""
        return SyncStream(self.loop_thread, self.wrapped.stream(**params))

    def stream_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> SyncAgentRun:
        """Run an agent and iterate over its events; see `antiphon.stream_agent`."""
        return SyncAgentRun(self.loop_thread, self.wrapped.stream_agent(prompt, **params))

    def resume(self, id: str, *, starting_after: int | None = None) -> SyncStream:
        """Stream a background response from its beginning, or after an event's number."""
        return SyncStream(self.loop_thread, self.wrapped.resume(id, starting_after=starting_after))

    def input_items(
        self, id: str, *, order: Order = "asc", after: str | None = None, include: Sequence[str] = ()
    ) -> Iterator[Item]:
        """Yield the input items of a response, the oldest first; pages are read as needed."""
        items = self.wrapped.input_items(id, order=order, after=after, include=include)
        return self.loop_thread.iterate(items.pages())

    def connect(self) -> SyncSession:
        """Open a WebSocket for many responses: `with client.connect() as session`."""
        return SyncSession(self.loop_thread, self.wrapped.connect())

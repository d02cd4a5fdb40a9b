"""`Client`: the same as `AsyncClient`, for code that does not await.

Everything happens in a loop of the client's own (`portal.py`); events cross to the caller in
batches, and a caller who is slow slows down the server, not our memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from antiphon.client.blocking import (
    SyncWrapper,
    SyncAgentRun,
    SyncConversationsApi,
    SyncSession,
    SyncStream,
    make_sync,
)
from antiphon.client.client import AsyncClient
from antiphon.client.fields import ResponseParams, Order
from antiphon.core.items import Item

if TYPE_CHECKING:
    from antiphon.client.agent.run import AgentParams
    from antiphon.transport.connection import Timeouts
    from antiphon.transport.http import Transport


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
        from antiphon.client.portal import EventLoopThread  # start-up time

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

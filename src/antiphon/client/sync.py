"""`Client`: the same as `AsyncClient`, for code that does not await.

Everything happens in a loop of the client's own (`portal.py`); events cross to the caller in
batches, and a caller who is slow slows down the server, not our memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from antiphon.client.blocking import (
    SyncAgentRun,
    SyncConversations,
    SyncSession,
    SyncStream,
)
from antiphon.client.client import AsyncClient
from antiphon.client.fields import CompactFields, Fields, Order
from antiphon.core.items import Item
from antiphon.core.response import CompactResource, InputTokens, Response

if TYPE_CHECKING:
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import Wanted
    from antiphon.transport.connection import Timeouts
    from antiphon.transport.http import Transport


class Client:
    """A client of one Open Responses server, for code that does not await.

        with Client("http://127.0.0.1:8000/v1") as client:
            print(client.create(model="demo", input="Hi!").output_text)

            for text in client.stream(model="demo", input="Hi!").text:
                print(text, end="")

    It needs no loop of the caller's, works where one is running, and may be shared by threads.
    What its arguments mean, and what it raises, is said at `AsyncClient`.
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
        from antiphon.client.portal import Portal  # start-up time

        self._portal = Portal()
        self._client = AsyncClient(
            base_url,
            api_key=api_key,
            headers=headers,
            timeout=timeout,
            retries=retries,
            strict=strict,
            transport=transport,
        )
        self.conversations = SyncConversations(self._portal, self._client.conversations)
        """The conversations that the server keeps."""

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._client.base_url

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the client's own thread."""
        self._portal.run(self._client.close())
        self._portal.close()

    def create(self, **fields: Unpack[Fields]) -> Response:
        """Ask for a response, and return it whole; in the background it is still `queued`."""
        return self._portal.run(self._client.create(**fields))

    def stream(self, **fields: Unpack[Fields]) -> SyncStream:
        """Ask for a response, and hear it as it is told."""
        return SyncStream(self._portal, self._client.stream(**fields))

    def stream_agent(self, prompt: object, **wanted: "Unpack[Wanted]") -> SyncAgentRun:
        """Run an agent, and iterate over everything that happens; see `antiphon.stream_agent`."""
        return SyncAgentRun(self._portal, self._client.stream_agent(prompt, **wanted))

    def run_agent(self, prompt: object, **wanted: "Unpack[Wanted]") -> "AgentResult":
        """Run an agent to its end, and return what came of it.

        `on_event` and functions that are async are called in the client's own thread.
        """
        return self._portal.run(self._client.run_agent(prompt, **wanted))

    def input_tokens(self, **fields: Unpack[Fields]) -> InputTokens:
        """Count the tokens that a request would give its model to read; nothing is generated."""
        return self._portal.run(self._client.input_tokens(**fields))

    def compact(self, **fields: Unpack[CompactFields]) -> CompactResource:
        """Make a conversation small; its `output` can be sent back as input."""
        return self._portal.run(self._client.compact(**fields))

    def retrieve(self, id: str, *, include: Sequence[str] = ()) -> Response:
        """Return a response that the server keeps."""
        return self._portal.run(self._client.retrieve(id, include=include))

    def resume(self, id: str, *, starting_after: int | None = None) -> SyncStream:
        """Hear a background response from its beginning, or after the event of a number."""
        return SyncStream(self._portal, self._client.resume(id, starting_after=starting_after))

    def cancel(self, id: str) -> Response:
        """Stop a background response; return it as far as it got."""
        return self._portal.run(self._client.cancel(id))

    def delete(self, id: str) -> None:
        """Delete a response that the server keeps."""
        self._portal.run(self._client.delete(id))

    def input_items(
        self,
        id: str,
        *,
        order: Order = "asc",
        after: str | None = None,
        include: Sequence[str] = (),
    ) -> Iterator[Item]:
        """Give the items that a response was made from, the oldest first; pages as needed."""
        pages = self._client.input_pages(id, order=order, after=after, include=include)
        return (item for page in self._portal.each(pages) for item in page)

    def models(self) -> list[str]:
        """Return the names of the models that the server has."""
        return self._portal.run(self._client.models())

    def connect(self) -> SyncSession:
        """Open a WebSocket for many responses: `with client.connect() as session`."""
        return SyncSession(self._portal, self._client.connect())

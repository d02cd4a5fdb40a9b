"""`AsyncClient`: any Open Responses server, ours or another's, asked from Python."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack
from weakref import WeakValueDictionary

from antiphon.adapters.fields import fields_of, list_of
from antiphon.client.ask import Ask, path
from antiphon.client.conversations import Conversations
from antiphon.client.fields import CompactFields, Fields, Order, body_of, headers_of
from antiphon.client.lenient import items_in, lenient
from antiphon.client.pages import Pages
from antiphon.client.stream import Source, Stream
from antiphon.core.items import Item
from antiphon.core.request import Request
from antiphon.core.response import CompactResource, InputTokens, Response

if TYPE_CHECKING:
    from antiphon.client.agent.floor import Floor
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentRun, Wanted
    from antiphon.client.socket import Session
    from antiphon.transport.connection import Timeouts
    from antiphon.transport.exchange import Exchange
    from antiphon.transport.http import Transport

PREFIX = "responses"
EVENTS = {"accept": "text/event-stream"}


class AsyncClient:
    """A client of one Open Responses server.

        async with AsyncClient("http://127.0.0.1:8000/v1") as client:
            response = await client.create(model="demo", input="Hi!")
            print(response.output_text)

            async with client.stream(model="demo", input="Hi!") as stream:
                async for event in stream:
                    ...

    Whatever the server refuses, and every failure on the way, raises `UpstreamError`, with the
    server's `status`, its `payload` (message, type, code, param) and whether it is `retryable`.
    What is wrong before anything is sent raises `RequestError`.

    - `base_url`: where `/responses` is found; `ANTIPHON_BASE_URL`, or our own server's default.
    - `api_key`: shown as a bearer token; `ANTIPHON_API_KEY`, or none.
    - `headers`: sent with every request.
    - `timeout`: seconds to wait for an answer to begin, and to go on; or `Timeouts`.
    - `retries`: how often a request is repeated that was refused for now (429, 5xx) or did not
      arrive, or, if it makes nothing (a GET or a DELETE), had no answer in time; never once an
      answer has begun. Each try may take the whole `timeout`, each pause up to 8 seconds.
    - `strict`: whether a stream that breaks a rule of the protocol raises `RemoteProtocolError`;
      otherwise it is mended.
    - `transport`: what carries the requests, in place of our own connections.
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
        from antiphon.client.peer import Peer  # start-up time

        self._peer = Peer(base_url, api_key, headers, timeout, retries, transport)
        self._strict = strict
        self.conversations = Conversations(self._peer)
        """The conversations that the server keeps."""
        self.floors: WeakValueDictionary[str, Floor] = WeakValueDictionary()
        """The floors of the conversations in which runs of agents speak now, by their ids."""
        self.speaks_chat = False
        """Whether the server was found to have chat completions and nothing else."""

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._peer.base_url}>"

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._peer.base_url

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; streams that are still being read end with an error."""
        await self._peer.close()

    # --- making responses ---

    async def create(self, **fields: Unpack[Fields]) -> Response:
        """Ask for a response, and return it whole.

        With `background=True` it comes back at once, still `queued`: `retrieve` it later, or
        `resume` its stream.
        """
        ask = Ask(path=PREFIX, body=body_of(fields), headers=headers_of(fields))
        return await self._response(ask)

    def stream(self, **fields: Unpack[Fields]) -> Stream:
        """Ask for a response, and hear it as it is told.

        A background response whose connection is lost is followed on by itself.
        """
        body = body_of(fields) | {"stream": True}
        ask = Ask(path=PREFIX, body=body, headers=EVENTS | headers_of(fields))
        return Stream(partial(self._told, ask))

    def once(self, body: Mapping[str, object]) -> Stream:
        """Ask for a response, and hear it as it is told; what fails is not tried again."""
        ask = Ask(path=PREFIX, body={**body, "stream": True}, headers=EVENTS)
        return Stream(partial(self._told, ask, 0))

    def in_chat(self, request: Request, items: Sequence[Item]) -> Stream:
        """Ask for a chat completion, and hear it as a response."""
        from antiphon.client.agent.chat import ask_in_chat  # start-up time

        return Stream(partial(ask_in_chat, self._peer, request, items))

    def stream_agent(self, prompt: object, **wanted: "Unpack[Wanted]") -> "AgentRun":
        """Run an agent here, and tell everything that happens; see `antiphon.stream_agent`."""
        from antiphon.client.agent.run import stream_agent  # start-up time

        return stream_agent(prompt, client=self, **wanted)

    async def run_agent(self, prompt: object, **wanted: "Unpack[Wanted]") -> "AgentResult":
        """Run an agent here to its end, and return what came of it."""
        return await self.stream_agent(prompt, **wanted)

    async def input_tokens(self, **fields: Unpack[Fields]) -> InputTokens:
        """Count the tokens that a request would give its model to read; nothing is generated."""
        ask = Ask(path=f"{PREFIX}/input_tokens", body=body_of(fields), headers=headers_of(fields))
        return lenient(InputTokens, await self._peer.ask(ask))

    async def compact(self, **fields: Unpack[CompactFields]) -> CompactResource:
        """Make a conversation small; its `output` can be sent back as input."""
        body = body_of(fields, CompactFields)
        ask = Ask(path=f"{PREFIX}/compact", body=body, headers=headers_of(fields))
        found = fields_of(await self._peer.ask(ask))
        return lenient(CompactResource, found | {"output": items_in(found.get("output"))})

    # --- responses that the server keeps ---

    async def retrieve(self, id: str, *, include: Sequence[str] = ()) -> Response:
        """Return a response that the server keeps."""
        query = [("include[]", name) for name in include]
        return await self._response(Ask(method="GET", path=path(PREFIX, id), query=query))

    def resume(self, id: str, *, starting_after: int | None = None) -> Stream:
        """Hear a background response from its beginning, or after the event of a number.

        After a number, the snapshot holds only what is told from there on, until the last event
        brings the whole response.
        """
        return Stream(partial(self._resumed, id, starting_after))

    async def cancel(self, id: str) -> Response:
        """Stop a background response; return it as far as it got."""
        return await self._response(Ask(path=path(PREFIX, id, "cancel")))

    async def delete(self, id: str) -> None:
        """Delete a response that the server keeps."""
        await self._peer.delete(path(PREFIX, id))

    def input_items(
        self,
        id: str,
        *,
        order: Order = "asc",
        after: str | None = None,
        include: Sequence[str] = (),
    ) -> Pages:
        """Give the items that a response was made from, the oldest first; pages as needed."""
        return Pages(self._peer, path(PREFIX, id, "input_items"), order, after, include)

    # --- the server ---

    async def models(self) -> list[str]:
        """Return the names of the models that the server has."""
        found = fields_of(await self._peer.ask(Ask(method="GET", path="models")))
        names = [fields_of(entry).get("id") for entry in list_of(found.get("data"))]
        return [name for name in names if isinstance(name, str)]

    def connect(self) -> "Session":
        """Open a WebSocket for many responses: `async with client.connect() as session`."""
        from antiphon.client.socket import Session  # start-up time

        peer = self._peer
        url = f"{peer.base_url}/{PREFIX}"
        return Session(url, peer.headers, strict=self._strict, timeout=peer.timeouts)

    # --- answers ---

    async def _response(self, ask: Ask) -> Response:
        from antiphon.client.reading import whole_response  # start-up time

        exchange = await self._peer.open(ask)
        return whole_response(await exchange.taken(), self._peer.who)

    async def _told(self, ask: Ask, retries: int | None = None) -> Source:
        return self._heard(await self._peer.open(ask, retries))

    async def _resumed(self, id: str, after: int | None) -> Source:
        number = -1 if after is None else after
        return self._heard(await self._follow(id, number, None), id, number)

    def _heard(self, exchange: "Exchange", id: str | None = None, after: int = -1) -> Source:
        from antiphon.client.listener import Listener  # start-up time
        from antiphon.client.source import HttpSource

        listener = Listener(strict=self._strict, after=after)
        return HttpSource(exchange, listener, self._follow, id)

    async def _follow(self, id: str, after: int, retries: int | None = 0) -> "Exchange":
        """Open the stream of a background response after the event of a number, -1 for all.

        Who follows a lost connection has a patience of their own, so nothing is tried again here.
        """
        query = [("stream", "true")]
        if after >= 0:
            query.append(("starting_after", str(after)))
        ask = Ask(method="GET", path=path(PREFIX, id), query=query, headers=EVENTS)
        return await self._peer.open(ask, retries)

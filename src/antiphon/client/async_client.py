"""`AsyncClient`: any Open Responses server, ours or another's, asked from Python."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack
from weakref import WeakValueDictionary

from antiphon.adapters.json_access import as_array, as_object
from antiphon.client.conversations import ConversationsApi
from antiphon.client.pagination import Paginator
from antiphon.client.params import (
    ApiRequest,
    CompactParams,
    Order,
    ResponseParams,
    build_body,
    build_headers,
    build_path,
)
from antiphon.client.stream import EventSource, Stream
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request
from antiphon.protocol.response import CompactResource, InputTokens, Response

if TYPE_CHECKING:
    from antiphon.client.agent.lock import ConversationLock
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentParams, AgentRun
    from antiphon.client.websocket import Session
    from antiphon.transport.client import Transport
    from antiphon.transport.connection import Timeouts
    from antiphon.transport.response import HttpResponse

RESPONSES_PATH = "responses"
SSE_HEADERS = {"accept": "text/event-stream"}


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
        from antiphon.client.http import HttpApi

        self._http = HttpApi(base_url, api_key, headers, timeout, retries, transport)
        self._strict = strict
        self.conversations = ConversationsApi(self._http)
        """The conversations that the server keeps."""
        self.conversation_locks: WeakValueDictionary[str, ConversationLock] = WeakValueDictionary()
        """The floors of the conversations in which runs of agents speak now, by their ids."""
        self.is_chat_only = False
        """Whether the server was found to have chat completions and nothing else."""

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._http.base_url}>"

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._http.base_url

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; streams that are still being read end with an error."""
        await self._http.close()

    # --- making responses ---

    async def create(self, **fields: Unpack[ResponseParams]) -> Response:
        """Ask for a response, and return it whole.

        With `background=True` it comes back at once, still `queued`: `retrieve` it later, or
        `resume` its stream.
        """
        ask = ApiRequest(
            path=RESPONSES_PATH, body=build_body(fields), headers=build_headers(fields)
        )
        return await self._request_response(ask)

    def stream(self, **fields: Unpack[ResponseParams]) -> Stream:
        """Ask for a response, and hear it as it is told.

        A background response whose connection is lost is followed on by itself.
        """
        body = build_body(fields) | {"stream": True}
        ask = ApiRequest(
            path=RESPONSES_PATH, body=body, headers=SSE_HEADERS | build_headers(fields)
        )
        return Stream(partial(self._open_stream, ask))

    def stream_without_retries(self, body: Mapping[str, object]) -> Stream:
        """Ask for a response, and hear it as it is told; what fails is not tried again."""
        ask = ApiRequest(path=RESPONSES_PATH, body={**body, "stream": True}, headers=SSE_HEADERS)
        return Stream(partial(self._open_stream, ask, 0))

    def stream_chat_completion(self, request: Request, items: Sequence[Item]) -> Stream:
        """Ask for a chat completion, and hear it as a response."""
        from antiphon.client.agent.chat import open_chat_source

        return Stream(partial(open_chat_source, self._http, request, items))

    def stream_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> "AgentRun":
        """Run an agent here, and tell everything that happens; see `antiphon.stream_agent`."""
        from antiphon.client.agent.run import stream_agent

        return stream_agent(prompt, client=self, **params)

    async def run_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> "AgentResult":
        """Run an agent here to its end, and return what came of it."""
        return await self.stream_agent(prompt, **params)

    async def input_tokens(self, **fields: Unpack[ResponseParams]) -> InputTokens:
        """Count the tokens that a request would give its model to read; nothing is generated."""
        ask = ApiRequest(
            path=f"{RESPONSES_PATH}/input_tokens",
            body=build_body(fields),
            headers=build_headers(fields),
        )
        return LENIENT.read(InputTokens, await self._http.request_json(ask))

    async def compact(self, **fields: Unpack[CompactParams]) -> CompactResource:
        """Make a conversation small; its `output` can be sent back as input."""
        body = build_body(fields, CompactParams)
        ask = ApiRequest(path=f"{RESPONSES_PATH}/compact", body=body, headers=build_headers(fields))
        found = as_object(await self._http.request_json(ask))
        output = LENIENT.read_items(found.get("output"))
        return LENIENT.read(CompactResource, found | {"output": output})

    # --- responses that the server keeps ---

    async def retrieve(self, id: str, *, include: Sequence[str] = ()) -> Response:
        """Return a response that the server keeps."""
        query = [("include[]", name) for name in include]
        return await self._request_response(
            ApiRequest(method="GET", path=build_path(RESPONSES_PATH, id), query=query)
        )

    def resume(self, id: str, *, starting_after: int | None = None) -> Stream:
        """Hear a background response from its beginning, or after the event of a number.

        After a number, the snapshot holds only what is told from there on, until the last event
        brings the whole response.
        """
        return Stream(partial(self._open_resumed_stream, id, starting_after))

    async def cancel(self, id: str) -> Response:
        """Stop a background response; return it as far as it got."""
        return await self._request_response(
            ApiRequest(path=build_path(RESPONSES_PATH, id, "cancel"))
        )

    async def delete(self, id: str) -> None:
        """Delete a response that the server keeps."""
        await self._http.delete(build_path(RESPONSES_PATH, id))

    def input_items(
        self,
        id: str,
        *,
        order: Order = "asc",
        after: str | None = None,
        include: Sequence[str] = (),
    ) -> Paginator:
        """Give the items that a response was made from, the oldest first; pages as needed."""
        return Paginator(
            self._http, build_path(RESPONSES_PATH, id, "input_items"), order, after, include
        )

    # --- the server ---

    async def models(self) -> list[str]:
        """Return the names of the models that the server has."""
        found = as_object(await self._http.request_json(ApiRequest(method="GET", path="models")))
        names = [as_object(entry).get("id") for entry in as_array(found.get("data"))]
        return [name for name in names if isinstance(name, str)]

    def connect(self) -> "Session":
        """Open a WebSocket for many responses: `async with client.connect() as session`."""
        from antiphon.client.websocket import Session

        peer = self._http
        url = f"{peer.base_url}/{RESPONSES_PATH}"
        return Session(url, peer.headers, strict=self._strict, timeout=peer.timeouts)

    # --- answers ---

    async def _request_response(self, request: ApiRequest) -> Response:
        from antiphon.client.event_reader import parse_response

        exchange = await self._http.send(request)
        return parse_response(await exchange.read_and_release(), self._http.server_name)

    async def _open_stream(self, request: ApiRequest, retries: int | None = None) -> EventSource:
        return self._event_source(await self._http.send(request, retries))

    async def _open_resumed_stream(self, id: str, after: int | None) -> EventSource:
        number = -1 if after is None else after
        return self._event_source(await self._reopen_stream(id, number, None), id, number)

    def _event_source(
        self, exchange: "HttpResponse", id: str | None = None, after: int = -1
    ) -> EventSource:
        from antiphon.client.event_reader import EventReader
        from antiphon.client.http_stream import HttpEventSource

        listener = EventReader(strict=self._strict, after=after)
        return HttpEventSource(exchange, listener, self._reopen_stream, id)

    async def _reopen_stream(self, id: str, after: int, retries: int | None = 0) -> "HttpResponse":
        """Open the stream of a background response after the event of a number, -1 for all.

        Who follows a lost connection has a patience of their own, so nothing is tried again here.
        """
        query = [("stream", "true")]
        if after >= 0:
            query.append(("starting_after", str(after)))
        ask = ApiRequest(
            method="GET", path=build_path(RESPONSES_PATH, id), query=query, headers=SSE_HEADERS
        )
        return await self._http.send(ask, retries)

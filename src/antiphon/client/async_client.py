"""`AsyncClient`: call any Open Responses server from Python."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack
from weakref import WeakValueDictionary

from antiphon.client.conversations import ConversationsApi, Paginator
from antiphon.client.params import (
    SSE_HEADERS,
    ApiRequest,
    CompactParams,
    Order,
    ResponseParams,
    build_api_request,
    build_path,
)
from antiphon.client.stream import EventSource, Stream
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.response import CompactResource, InputTokens, Response
from antiphon.protocol.struct import as_array, as_object

# Imported where they are used: asyncio, TLS and the WebSocket library take long to import, and a
# program that only constructs a client should start at once.
if TYPE_CHECKING:
    from antiphon.client.agent.conversation import ConversationLock
    from antiphon.client.agent.loop import AgentResult
    from antiphon.client.agent.run import AgentParams, AgentRun
    from antiphon.client.websocket import Session
    from antiphon.transport.client import Transport
    from antiphon.transport.connection import Timeouts
    from antiphon.transport.response import HttpResponse

RESPONSES_PATH = "responses"


class AsyncClient:
    """A client of one Open Responses server.

        async with AsyncClient("http://127.0.0.1:8000/v1") as client:
            response = await client.create(model="demo", input="Hi!")
            print(response.output_text)

            async with client.stream(model="demo", input="Hi!") as stream:
                async for event in stream:
                    ...

    Errors of the server and of the connection raise `UpstreamError`, with the server's `status`,
    its `payload` (message, type, code, param) and whether it is `retryable`. Errors found before
    anything is sent raise `RequestError`.

    - `base_url`: the URL above `/responses`. Default: `ANTIPHON_BASE_URL`, or a local server.
    - `api_key`: sent as a bearer token. Default: `ANTIPHON_API_KEY`, or none.
    - `headers`: sent with every request.
    - `timeout`: seconds until a response begins, and between two reads of it; or `Timeouts`.
    - `retries`: how often a request is repeated after a 429, a 5xx or a failed connection, and,
      for GET and DELETE, after a timeout; never once a response has begun. Each attempt may take
      the whole `timeout`, each pause between two attempts up to 8 seconds.
    - `strict`: raise `RemoteProtocolError` if a stream violates the protocol. Otherwise repair it.
    - `transport`: sends the requests instead of our own HTTP client.
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

        self.http = HttpApi(base_url, api_key, headers, timeout, retries, transport)
        self._strict = strict
        self.conversations = ConversationsApi(self.http)
        """The conversations that the server stores."""
        # Weak: a lock lives as long as a conversation object that uses it.
        self.conversation_locks: WeakValueDictionary[str, ConversationLock] = WeakValueDictionary()
        """Locks of the stored conversations that agent runs use now, by conversation id."""
        self.is_chat_only = False
        """Whether the server turned out to have chat completions but no `/responses`."""

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.base_url}>"

    @property
    def base_url(self) -> str:
        """The URL above `/responses`."""
        return self.http.base_url

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; streams still being read end with an error."""
        await self.http.close()

    async def create(self, **params: Unpack[ResponseParams]) -> Response:
        """Create a response and return it when it has ended.

        With `background=True` it is returned at once, `queued`: call `retrieve` later, or `resume` to stream it.
        """
        return await self._request_response(build_api_request(RESPONSES_PATH, params))

    def stream(self, **params: Unpack[ResponseParams]) -> Stream:
        """Create a response and stream its events; a background response reconnects if its connection is lost."""
        request = build_api_request(RESPONSES_PATH, params, stream=True)
        return Stream(partial(self._open_stream, partial(self.http.send, request)))

    def stream_without_retries(self, body: Mapping[str, object]) -> Stream:
        """Create a response from a finished body and stream its events; never retry."""
        # For the agent loop, which has retries of its own: both would multiply.
        request = ApiRequest(path=RESPONSES_PATH, body={**body, "stream": True}, headers=SSE_HEADERS)
        return Stream(partial(self._open_stream, partial(self.http.send, request, 0)))

    def stream_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> "AgentRun":
        """Run an agent and stream its events; see `antiphon.stream_agent`."""
        from antiphon.client.agent.run import stream_agent

        return stream_agent(prompt, client=self, **params)

    async def run_agent(self, prompt: object, **params: "Unpack[AgentParams]") -> "AgentResult":
        """Run an agent to its end and return the result."""
        return await self.stream_agent(prompt, **params)

    async def input_tokens(self, **params: Unpack[ResponseParams]) -> InputTokens:
        """Count the input tokens of a request without generating a response."""
        request = build_api_request(f"{RESPONSES_PATH}/input_tokens", params)
        return LENIENT.read(InputTokens, await self.http.request_json(request))

    async def compact(self, **params: Unpack[CompactParams]) -> CompactResource:
        """Compact a conversation; the `output` can be sent as input."""
        request = build_api_request(f"{RESPONSES_PATH}/compact", params, CompactParams)
        found = as_object(await self.http.request_json(request))
        return LENIENT.read(CompactResource, found | {"output": LENIENT.read_items(found.get("output"))})

    async def retrieve(self, id: str, *, include: Sequence[str] = ()) -> Response:
        """Return a stored response."""
        query = [("include[]", name) for name in include]
        return await self._request_response(ApiRequest(method="GET", path=build_path(RESPONSES_PATH, id), query=query))

    def resume(self, id: str, *, starting_after: int | None = None) -> Stream:
        """Stream a background response from its beginning, or after an event's number.

        After a number, the snapshot has only what followed it, until the last event brings the whole response.
        """
        after = -1 if starting_after is None else starting_after
        # The first request is retried like any other GET; later ones count as reconnects.
        return Stream(partial(self._open_stream, partial(self._reopen_stream, id, after, None), id, after))

    async def cancel(self, id: str) -> Response:
        """Cancel a background response; return it as far as it got."""
        return await self._request_response(ApiRequest(path=build_path(RESPONSES_PATH, id, "cancel")))

    async def delete(self, id: str) -> None:
        """Delete a stored response."""
        await self.http.delete(build_path(RESPONSES_PATH, id))

    def input_items(
        self, id: str, *, order: Order = "asc", after: str | None = None, include: Sequence[str] = ()
    ) -> Paginator:
        """Return the input items of a response, by default the oldest first; pages are read as needed."""
        return Paginator(self.http, build_path(RESPONSES_PATH, id, "input_items"), order, after, include)

    async def models(self) -> list[str]:
        """Return the names of the server's models."""
        found = as_object(await self.http.request_json(ApiRequest(method="GET", path="models")))
        names = [as_object(entry).get("id") for entry in as_array(found.get("data"))]
        # Some servers list entries without an id.
        return [name for name in names if isinstance(name, str)]

    def connect(self) -> "Session":
        """Open a WebSocket for many responses: `async with client.connect() as session`."""
        from antiphon.client.websocket import Session

        url = f"{self.base_url}/{RESPONSES_PATH}"
        return Session(url, self.http.headers, strict=self._strict, timeout=self.http.timeouts)

    async def _request_response(self, request: ApiRequest) -> Response:
        from antiphon.client.http import parse_response

        response = await self.http.send(request)
        return parse_response(await response.read_and_release(), self.http.server_name)

    async def _open_stream(
        self, send: "Callable[[], Awaitable[HttpResponse]]", id: str | None = None, after: int = -1
    ) -> EventSource:
        from antiphon.client.http import EventReader, HttpEventSource

        reader = EventReader(strict=self._strict, after=after)
        return HttpEventSource(await send(), reader, self._reopen_stream, id)

    async def _reopen_stream(self, id: str, after: int, retries: int | None = 0) -> "HttpResponse":
        """Open the stream of a background response after an event's number, -1 for all."""
        query = [("stream", "true")]
        if after >= 0:
            query.append(("starting_after", str(after)))
        path = build_path(RESPONSES_PATH, id)
        request = ApiRequest(method="GET", path=path, query=query, headers=SSE_HEADERS)
        # No retries by default: HttpEventSource counts its own.
        return await self.http.send(request, retries)

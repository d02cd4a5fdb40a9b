"""The ways to ask a server for a round: a WebSocket, the Responses API over HTTP, or a chat.

All of them give the same stream of events. The first two remember what was said before; a chat is
told everything, every time.
"""

from typing import Literal

from antiphon.adapters.json_access import as_array
from antiphon.adapters.open_responses.adapter import (
    encode_items,
    is_missing_endpoint,
    is_reasoning_unsupported,
)
from antiphon.adapters.openai_chat.servers import is_openai
from antiphon.client.agent.history import RunHistory
from antiphon.client.agent.options import AgentOptions
from antiphon.client.async_client import AsyncClient
from antiphon.client.stream import EventSource, Stream
from antiphon.client.websocket import Session
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire.openresponses import decode_request

TransportKind = Literal["websocket", "http", "chat"]

WEBSOCKET_REFUSED = "websocket_refused"
RESPONSE_NOT_FOUND = "previous_response_not_found"


class AgentTransport:
    """The way that one run asks its server, and the ones it may take instead."""

    def __init__(self, client: AsyncClient, options: AgentOptions) -> None:
        self._client = client
        self._is_undecided = options.use_responses_api is None
        """Whether the way is still to be found."""
        self._wants_encrypted_reasoning = True
        """Whether thinking is asked for under seal, so that it can be sent back."""
        self._is_openai = is_openai(client.base_url)
        """Whether it is OpenAI's own server."""
        self._session: Session | None = None
        self.kind: TransportKind = "http"
        if options.use_responses_websocket:
            self.kind = "websocket"
        elif options.use_responses_api is False or (self._is_undecided and client.is_chat_only):
            self.kind = "chat"

    def stream(self, fields: dict[str, object], history: RunHistory) -> Stream:
        """Ask for the next round."""
        if self.kind == "chat":
            return self._client.stream_chat_completion(self._build_request(fields), history.items)
        round = history.next_input()
        told = encode_items(
            round.items, reasoning=self._wants_encrypted_reasoning, is_openai=self._is_openai
        )
        body = fields | {"input": told, "store": False}
        if self._wants_encrypted_reasoning:
            asked = [
                name
                for name in as_array(fields.get("include"))
                if name != INCLUDE_ENCRYPTED_REASONING
            ]
            body["include"] = [*asked, INCLUDE_ENCRYPTED_REASONING]
        if round.previous is not None:
            body["previous_response_id"] = round.previous
        if self.kind == "websocket":
            return Stream(lambda: self._open_websocket_source(body))
        return self._client.stream_without_retries(body)

    @property
    def is_stateful(self) -> bool:
        """Whether the server is asked in a way that lets it remember."""
        return self.kind != "chat"

    def check_continuation(self, response: Response, history: RunHistory) -> None:
        """Raise UpstreamError for an answer that has begun as if nothing had been said before.

        A server that keeps nothing may not say so; but what a response continues, it names.
        """
        if self.is_stateful and history.continues and response.previous_response_id is None:
            message = "The server does not continue the response that it was asked to."
            raise UpstreamError(message, status=400, code=RESPONSE_NOT_FOUND)

    def record_success(self) -> None:
        """Take note that the server can be asked in this way: the run keeps to it."""
        if self._is_undecided and self.kind == "chat":
            self._client.is_chat_only = True
        self._is_undecided = False

    def drop_encrypted_reasoning(self, error: UpstreamError) -> bool:
        """Ask for no sealed thinking any more if that is what was refused; tell whether it was."""
        refused = self._wants_encrypted_reasoning and is_reasoning_unsupported(error)
        self._wants_encrypted_reasoning = self._wants_encrypted_reasoning and not refused
        return refused

    def fall_back(self, error: UpstreamError) -> TransportKind | None:
        """Take another way if this one is closed for good; return its name."""
        if self.kind == "websocket" and error.payload.code == WEBSOCKET_REFUSED:
            self.kind = "http"
        elif self.kind == "http" and self._is_undecided and is_missing_endpoint(error):
            self.kind = "chat"
        else:
            return None
        return self.kind

    async def disconnect(self) -> None:
        """Leave the socket, if there is one; another round would open another."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open_websocket_source(self, body: dict[str, object]) -> EventSource:
        if self._session is None or self._session.closed:
            session = self._client.connect()
            await session.open()
            self._session = session
        return await self._session.lane("").open_source(body)

    def _build_request(self, fields: dict[str, object]) -> Request:
        try:
            return decode_request({**fields, "stream": True, "store": False})
        except InvalidValueError as error:
            raise RequestError.from_invalid_value(error) from None

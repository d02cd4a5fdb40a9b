"""The ways to ask a server for a round: a WebSocket, the Responses API over HTTP, or a chat.

All of them give the same stream of events. The first two remember what was said before; a chat is
told everything, every time.
"""

from typing import Literal

from antiphon.adapters.fields import list_of
from antiphon.adapters.openai import is_openai
from antiphon.adapters.responses import is_absent, is_thoughtless, written
from antiphon.client.agent.options import AgentOptions
from antiphon.client.agent.rounds import Rounds
from antiphon.client.client import AsyncClient
from antiphon.client.socket import Session
from antiphon.client.stream import Source, Stream
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.core.request import ENCRYPTED_REASONING, Request
from antiphon.core.response import Response
from antiphon.core.value import ShapeError
from antiphon.wire.dialects import read_request

Way = Literal["websocket", "http", "chat"]

REFUSED = "websocket_refused"
FORGOTTEN = "previous_response_not_found"


class Routes:
    """The way that one run asks its server, and the ones it may take instead."""

    def __init__(self, client: AsyncClient, options: AgentOptions) -> None:
        self._client = client
        self._free = options.use_responses_api is None
        """Whether the way is still to be found."""
        self._sealed = True
        """Whether thinking is asked for under seal, so that it can be sent back."""
        self._own = is_openai(client.base_url)
        """Whether it is OpenAI's own server."""
        self._session: Session | None = None
        self.way: Way = "http"
        if options.use_responses_websocket:
            self.way = "websocket"
        elif options.use_responses_api is False or (self._free and client.speaks_chat):
            self.way = "chat"

    def stream(self, fields: dict[str, object], rounds: Rounds) -> Stream:
        """Ask for the next round."""
        if self.way == "chat":
            return self._client.in_chat(self._request(fields), rounds.items)
        round = rounds.ask()
        told = written(round.items, thinks=self._sealed, own=self._own)
        body = fields | {"input": told, "store": False}
        if self._sealed:
            asked = [name for name in list_of(fields.get("include")) if name != ENCRYPTED_REASONING]
            body["include"] = [*asked, ENCRYPTED_REASONING]
        if round.previous is not None:
            body["previous_response_id"] = round.previous
        if self.way == "websocket":
            return Stream(lambda: self._socket(body))
        return self._client.once(body)

    @property
    def remembers(self) -> bool:
        """Whether the server is asked in a way that lets it remember."""
        return self.way != "chat"

    def check(self, response: Response, rounds: Rounds) -> None:
        """Raise UpstreamError for an answer that has begun as if nothing had been said before.

        A server that keeps nothing may not say so; but what a response continues, it names.
        """
        if self.remembers and rounds.continues and response.previous_response_id is None:
            message = "The server does not continue the response that it was asked to."
            raise UpstreamError(message, status=400, code=FORGOTTEN)

    def answered(self) -> None:
        """Take note that the server can be asked in this way: the run keeps to it."""
        if self._free and self.way == "chat":
            self._client.speaks_chat = True
        self._free = False

    def unsealed(self, error: UpstreamError) -> bool:
        """Ask for no sealed thinking any more if that is what was refused; tell whether it was."""
        refused = self._sealed and is_thoughtless(error)
        self._sealed = self._sealed and not refused
        return refused

    def instead(self, error: UpstreamError) -> Way | None:
        """Take another way if this one is closed for good; return its name."""
        if self.way == "websocket" and error.payload.code == REFUSED:
            self.way = "http"
        elif self.way == "http" and self._free and is_absent(error):
            self.way = "chat"
        else:
            return None
        return self.way

    async def disconnect(self) -> None:
        """Leave the socket, if there is one; another round would open another."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _socket(self, body: dict[str, object]) -> Source:
        if self._session is None or self._session.closed:
            session = self._client.connect()
            await session.open()
            self._session = session
        return await self._session.lane("").source(body)

    def _request(self, fields: dict[str, object]) -> Request:
        try:
            return read_request({**fields, "stream": True, "store": False})
        except ShapeError as error:
            raise RequestError.of_shape(error) from None

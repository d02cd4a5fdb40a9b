"""One more encoding of the same events: chat completions.

Frames have no event type, only data. A stream that breaks ends with `{"error": …}`. Errors have
OpenAI's names, and a model that does not exist is a 404, as OpenAI's chat has it.
"""

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import Event, ResponseFailed
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode, to_builtins
from antiphon.wire.chat.chunks import CHUNK, ChunkEncoder
from antiphon.wire.chat.completion import encode_completion
from antiphon.wire.chat.request import ChatRequest
from antiphon.wire.openresponses import EncodedEvent, OpenAIDialect, failure_payload

EMPTY_REQUEST = ChatRequest(Request())


class ChatDialect(OpenAIDialect):
    """How a chat is answered; one for each answer, because a chunk depends on those before it."""

    name = "chat"

    def __init__(self, request: ChatRequest = EMPTY_REQUEST) -> None:
        super().__init__()
        self._request = request
        self._chunks = ChunkEncoder(request)

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Write one event as the chunks it is, perhaps none."""
        if isinstance(event, ResponseFailed):
            return [("error", self.encode_error(failure_payload(event.response)))]
        return [(CHUNK, data) for data in self._chunks.encode_event(event)]

    def encode_sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events, perhaps none."""
        if isinstance(event, ResponseFailed):
            return b"data: " + self.encode_error(failure_payload(event.response)) + b"\n\n"
        return self._chunks.encode_sse(event)

    def text_fast_path(self, delta: Event) -> None:
        """Chunks have no form: what they say depends on what was said before."""
        del delta

    def encode_response(self, response: Response) -> bytes:
        """Write a response as a completion."""
        return encode(encode_completion(response, self._request))

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Write the body of an HTTP error, or the end of a stream that breaks."""
        del detail
        return encode({"error": to_builtins(self._rename_error(payload))})

    def error_status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error."""
        return error.status

    def param_name(self, name: str) -> str:
        """Return what a chat client calls one of our params."""
        return self._request.param_name(name)

"""One more encoding of the same events: chat completions.

Frames have no event type, only data. A stream that breaks ends with `{"error": …}`. Errors have
OpenAI's names, and a model that does not exist is a 404, as OpenAI's chat has it.
"""

from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.events import Event, ResponseFailed
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.value import encode, plain
from antiphon.wire.chat_chunks import CHUNK, Chunks
from antiphon.wire.chat_completion import completion
from antiphon.wire.chat_request import Chat
from antiphon.wire.dialects import Frame, OpenAIDialect, failure_of

NOBODY = Chat(Request())


class ChatDialect(OpenAIDialect):
    """How a chat is answered; one for each answer, because a chunk depends on those before it."""

    name = "chat"

    def __init__(self, asked: Chat = NOBODY) -> None:
        super().__init__()
        self._asked = asked
        self._chunks = Chunks(asked)

    def event(self, event: Event) -> list[Frame]:
        """Write one event as the chunks it is, perhaps none."""
        if isinstance(event, ResponseFailed):
            return [("error", self.error(failure_of(event.response)))]
        return [(CHUNK, data) for data in self._chunks.of(event)]

    def sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events, perhaps none."""
        if isinstance(event, ResponseFailed):
            return b"data: " + self.error(failure_of(event.response)) + b"\n\n"
        return self._chunks.sse(event)

    def form(self, delta: Event) -> None:
        """Chunks have no form: what they say depends on what was said before."""
        del delta

    def response(self, response: Response) -> bytes:
        """Write a response as a completion."""
        return encode(completion(response, self._asked))

    def error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Write the body of an HTTP error, or the end of a stream that breaks."""
        del detail
        return encode({"error": plain(self._named(payload))})

    def status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error."""
        return error.status

    def param(self, name: str) -> str:
        """Return what a chat client calls one of our params."""
        return self._asked.place(name)

"""A server held to the letter: the first rule that its stream breaks is an error.

OpenAI's dialect breaks none: it is evened out as it is for upstreams, and its own events count as
extensions.
"""

from antiphon.adapters.fields import fields_of, string
from antiphon.adapters.responses.judge import evened, specified
from antiphon.core.errors import RemoteProtocolError
from antiphon.core.events import Event, ExtensionEvent, decode_event
from antiphon.core.judge import Rulebook
from antiphon.core.rules import Violation
from antiphon.core.value import ShapeError, decode
from antiphon.wire.dialects import ITEMS, SLUG

OPENAI = ITEMS | {
    "audio",
    "code_interpreter_call_code",
    "compaction",
    "custom_tool_call_input",
    "mcp_call_arguments",
    "shell_call_command",
    "shell_call_output_content",
}
"""What OpenAI's own events are about: `response.web_search_call.searching` and the like."""


class Letter:
    """Judges one stream as it comes; raises RemoteProtocolError."""

    def __init__(self) -> None:
        self._book = Rulebook()
        self._position = -1

    def delta(self, event: Event) -> None:
        """Judge a delta that has been read already."""
        self._position += 1
        self._raise(self._book.feed(event))

    def event(self, raw: object) -> None:
        """Judge anything, as it was sent."""
        self._position += 1
        fields = fields_of(raw)
        sent = string(fields.get("type"))
        try:
            if known := specified(sent):
                event = decode_event(evened(fields | {"type": known}))
            else:
                event = decode(ExtensionEvent, fields | {"type": extension(sent)})
        except ShapeError as error:
            name = f" ({sent[:80]})" if sent else ""
            message = f"event {self._position}{name} has the wrong shape: {error} [shape]"
            raise RemoteProtocolError(message) from None
        self._raise(self._book.feed(event))

    def close(self) -> None:
        """Judge the end."""
        self._raise(self._book.close())

    def _raise(self, broken: list[Violation]) -> None:
        if broken:
            raise RemoteProtocolError(str(broken[0]))


def extension(type: str) -> str:
    """Return the type of an event that the specification does not have; OpenAI's get a slug."""
    _, _, name = type.partition("response.")
    about = name.partition(".")[0]
    return f"{SLUG}{about}" if about in OPENAI or type == "keepalive" else type

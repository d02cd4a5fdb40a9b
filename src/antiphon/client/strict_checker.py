"""A server held to the letter: the first rule that its stream breaks is an error.

OpenAI's dialect breaks none: it is evened out as it is for upstreams, and its own events count as
extensions.
"""

from antiphon.adapters.json_access import as_object, as_string
from antiphon.adapters.open_responses.stream_checker import canonical_event_type, normalize_event
from antiphon.protocol.checker import StreamChecker
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import Event, ExtensionEvent, decode_event
from antiphon.protocol.foreign.openai_types import OPENAI_ITEMS, SLUG
from antiphon.protocol.rules import RuleViolation
from antiphon.protocol.struct import InvalidValueError, decode

OPENAI_EVENT_SUBJECTS = OPENAI_ITEMS | {
    "audio",
    "code_interpreter_call_code",
    "compaction",
    "custom_tool_call_input",
    "mcp_call_arguments",
    "shell_call_command",
    "shell_call_output_content",
}
"""What OpenAI's own events are about: `response.web_search_call.searching` and the like."""


class StrictChecker:
    """Judges one stream as it comes; raises RemoteProtocolError."""

    def __init__(self) -> None:
        self._checker = StreamChecker()
        self._position = -1

    def check_delta(self, event: Event) -> None:
        """Judge a delta that has been read already."""
        self._position += 1
        self._raise_first(self._checker.feed(event))

    def check(self, raw: object) -> None:
        """Judge anything, as it was sent."""
        self._position += 1
        fields = as_object(raw)
        sent = as_string(fields.get("type"))
        try:
            if known := canonical_event_type(sent):
                event = decode_event(normalize_event(fields | {"type": known}))
            else:
                event = decode(ExtensionEvent, fields | {"type": extension_type(sent)})
        except InvalidValueError as error:
            name = f" ({sent[:80]})" if sent else ""
            message = f"event {self._position}{name} has the wrong shape: {error} [shape]"
            raise RemoteProtocolError(message) from None
        self._raise_first(self._checker.feed(event))

    def close(self) -> None:
        """Judge the end."""
        self._raise_first(self._checker.close())

    def _raise_first(self, broken: list[RuleViolation]) -> None:
        if broken:
            raise RemoteProtocolError(str(broken[0]))


def extension_type(type: str) -> str:
    """Return the type of an event that the specification does not have; OpenAI's get a slug."""
    _, _, name = type.partition("response.")
    about = name.partition(".")[0]
    return f"{SLUG}{about}" if about in OPENAI_EVENT_SUBJECTS or type == "keepalive" else type

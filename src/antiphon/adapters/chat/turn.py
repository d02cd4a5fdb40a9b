"""One message of the assistant's, gathered from the items of its turn."""

from antiphon.adapters.chat.thinking import ChatSeal
from antiphon.adapters.fields import JsonObject, drop_empty
from antiphon.core.content import content_text
from antiphon.core.items import Reasoning


class AssistantMessage:
    """What an assistant said in a row, on its way to be one message."""

    def __init__(self) -> None:
        self.content: list[JsonObject] = []
        self.calls: list[tuple[str, JsonObject]] = []
        """The calls, each with the id that its item has."""
        self.reasoning_fields: dict[str, str] = {}
        self.reasoning_details: list[JsonObject] = []
        self.call_extras: dict[str | int, JsonObject] = {}
        """What belongs beside calls, by their ids, or else by their places."""

    def add_content(self, content: list[JsonObject]) -> None:
        """Add words."""
        self.content += content

    def add_reasoning(self, item: Reasoning, seal: ChatSeal) -> None:
        """Add thinking where it came from, with what it came with."""
        text = "".join(map(content_text, item.content or ()))
        if seal.field == "content":
            self.content.append({"type": "thinking", "thinking": [text_part(text)]})
        elif seal.field and text:
            self.reasoning_fields[seal.field] = self.reasoning_fields.get(seal.field, "") + text
        self.reasoning_details += seal.details
        if seal.extra:
            self.call_extras[seal.call or len(self.calls)] = seal.extra

    def add_call(self, call_id: str, call: JsonObject) -> None:
        """Add a call."""
        self.calls.append((call_id, call))

    def encode(self) -> list[JsonObject]:
        """Return the message, if anything was said in it."""
        content = [part for part in self.content if part != text_part("")]
        said = [part for part in content if part["type"] != "thinking"]
        if not (said or self.calls):
            return []
        message: JsonObject = {"role": "assistant", "content": collapse_content(content) or None}
        if len(content) == 1 and "refusal" in content[0]:
            message |= {"content": None, "refusal": content[0]["refusal"]}
        more: JsonObject = {"reasoning_details": self.reasoning_details, "tool_calls": self._calls_with_extras()}
        return [message | self.reasoning_fields | drop_empty(more)]

    def _calls_with_extras(self) -> list[JsonObject]:
        """Return the calls with what belongs beside them; what is of no call here is left out."""
        return [
            call | drop_empty({"extra_content": self.call_extras.get(id) or self.call_extras.get(place)})
            for place, (id, call) in enumerate(self.calls)
        ]


def collapse_content(parts: list[JsonObject]) -> object:
    """Return one text as a string, and anything else as it is."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def text_part(text: str) -> JsonObject:
    """Write text."""
    return {"type": "text", "text": text}

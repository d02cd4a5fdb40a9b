"""One message of the assistant's, gathered from the items of its turn."""

from antiphon.adapters.chat.thinking import Seal
from antiphon.adapters.fields import Fields, filled
from antiphon.core.content import text_of
from antiphon.core.items import Reasoning


class Turn:
    """What an assistant said in a row, on its way to be one message."""

    def __init__(self) -> None:
        self.content: list[Fields] = []
        self.calls: list[tuple[str, Fields]] = []
        """The calls, each with the id that its item has."""
        self.thought: dict[str, str] = {}
        self.details: list[Fields] = []
        self.beside: dict[str | int, Fields] = {}
        """What belongs beside calls, by their ids, or else by their places."""

    def say(self, content: list[Fields]) -> None:
        """Add words."""
        self.content += content

    def think(self, item: Reasoning, seal: Seal) -> None:
        """Add thinking where it came from, with what it came with."""
        text = "".join(map(text_of, item.content or ()))
        if seal.field == "content":
            self.content.append({"type": "thinking", "thinking": [text_part(text)]})
        elif seal.field and text:
            self.thought[seal.field] = self.thought.get(seal.field, "") + text
        self.details += seal.details
        if seal.extra:
            self.beside[seal.call or len(self.calls)] = seal.extra

    def call(self, call_id: str, call: Fields) -> None:
        """Add a call."""
        self.calls.append((call_id, call))

    def message(self) -> list[Fields]:
        """Return the message, if anything was said in it."""
        content = [part for part in self.content if part != text_part("")]
        said = [part for part in content if part["type"] != "thinking"]
        if not (said or self.calls):
            return []
        message: Fields = {"role": "assistant", "content": collapsed(content) or None}
        if len(content) == 1 and "refusal" in content[0]:
            message |= {"content": None, "refusal": content[0]["refusal"]}
        more: Fields = {"reasoning_details": self.details, "tool_calls": self._signed()}
        return [message | self.thought | filled(more)]

    def _signed(self) -> list[Fields]:
        """Return the calls with what belongs beside them; what is of no call here is left out."""
        return [
            call | filled({"extra_content": self.beside.get(id) or self.beside.get(place)})
            for place, (id, call) in enumerate(self.calls)
        ]


def collapsed(written: list[Fields]) -> object:
    """Return one text as a string, and anything else as it is."""
    if len(written) == 1 and written[0]["type"] == "text":
        return written[0]["text"]
    return written or ""


def text_part(text: str) -> Fields:
    """Write text."""
    return {"type": "text", "text": text}

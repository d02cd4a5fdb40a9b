"""What the built-in models call a token: a word, in and out."""

import re
from collections.abc import Iterator

from antiphon.agents.turn import Turn
from antiphon.core import parts
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message
from antiphon.core.parts import Part
from antiphon.core.value import encode

WORD_PATTERN = re.compile(r"\s*\S+|\s+$")
JSON_PIECE_PATTERN = re.compile(r".{1,8}", re.DOTALL)


class TokenMeter:
    """Counts the tokens of an answer, and cuts it at its limit.

    A token is a word; in the arguments of a call it is eight characters.
    """

    def __init__(self, turn: Turn) -> None:
        self.limit = turn.request.max_output_tokens
        prompt = [turn.instructions or "", *(encode(tool).decode() for tool in turn.tools)]
        self.input = sum(map(count_words, [*prompt, *map(item_text, turn.items)]))
        self.output = 0
        self.reasoning = 0
        self.truncated = False

    def pieces(self, text: str, pattern: re.Pattern[str] = WORD_PATTERN) -> Iterator[str]:
        """Give a text piece by piece, as far as the limit allows."""
        for piece in pattern.findall(text):
            if self.output == self.limit:
                self.truncated = True
                return
            self.output += 1
            yield piece

    def finish(self) -> Iterator[Part]:
        """Say what has been read and said, and whether that was all."""
        yield parts.Usage(self.input, self.output, 0, self.reasoning)
        if self.truncated:
            yield parts.Finish("length")


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def item_text(item: Item) -> str:
    """Return the words of an item."""
    match item:
        case Message() | FunctionCallOutput():
            return item.text
        case FunctionCall():
            return f"{item.name} {item.arguments}"
        case _:
            return item.type

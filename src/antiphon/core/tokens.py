"""How many tokens something is, when nobody has counted: an estimate, and called one.

Four ASCII characters are about one token in every vocabulary we know; other characters are about
one token each. Images and files have no words; theirs are round figures.
"""

from collections.abc import Iterable, Sequence

from antiphon.core.content import Content, InputFile, InputImage, InputVideo, text_of
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.core.tools import Tool
from antiphon.core.value import encode

PER_ITEM = 4
PER_IMAGE = 765
PER_VIDEO = 5_000


def of_text(text: str) -> int:
    """Estimate the tokens of a text."""
    if text.isascii():
        return (len(text) + 3) // 4
    ascii = len(text.encode("ascii", "ignore"))
    return (ascii + 3) // 4 + len(text) - ascii


def of_items(items: Iterable[Item]) -> int:
    """Estimate the tokens of a conversation."""
    return sum(map(of_item, items))


def of_item(item: Item) -> int:
    """Estimate the tokens of one item."""
    match item:
        case Message(content=content):
            return PER_ITEM + _of_content(content)
        case FunctionCall(name=name, arguments=arguments):
            return PER_ITEM + of_text(name) + of_text(arguments)
        case FunctionCallOutput(output=output):
            return PER_ITEM + (of_text(output) if isinstance(output, str) else _of_content(output))
        case Reasoning(summary=summary, content=content):
            return PER_ITEM + _of_content(summary) + (_of_content(content) if content else 0)
        case _:
            return PER_ITEM + of_text(encode(item).decode())


def of_prompt(instructions: str | None, tools: Sequence[Tool], items: Iterable[Item]) -> int:
    """Estimate the tokens of everything a model reads."""
    offered = of_text(encode(list(tools)).decode()) if tools else 0
    return of_text(instructions or "") + offered + of_items(items)


def _of_content(content: Iterable[Content]) -> int:
    return sum(map(_of_part, content))


def _of_part(part: Content) -> int:
    match part:
        case InputImage():
            return PER_IMAGE
        case InputVideo():
            return PER_VIDEO
        case InputFile(file_data=data):
            return PER_IMAGE + (len(data) // 8 if data else 0)
        case _:
            return of_text(text_of(part))

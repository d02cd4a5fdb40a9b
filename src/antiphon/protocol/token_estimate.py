"""An estimate of the number of tokens, for when no provider has counted them.

Four ASCII characters are about one token in the usual vocabularies; any other character is about
one token. Images, videos and files count as fixed numbers.
"""

from collections.abc import Iterable, Sequence

from antiphon.protocol.content import Content, InputFile, InputImage, InputVideo, content_text
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.protocol.struct import encode
from antiphon.protocol.tools import Tool

# Role and separators of one item.
TOKENS_PER_ITEM = 4
# OpenAI's count for an image of 1024 × 1024 pixels at high detail; the real size is not known here.
TOKENS_PER_IMAGE = 765
# A round number: the length of the video is not known here either.
TOKENS_PER_VIDEO = 5_000


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text."""
    if text.isascii():
        return (len(text) + 3) // 4
    # Encoding is done in C; counting in Python would be slow for a long conversation.
    ascii = len(text.encode("ascii", "ignore"))
    return (ascii + 3) // 4 + len(text) - ascii


def estimate_items(items: Iterable[Item]) -> int:
    """Estimate the tokens of a conversation."""
    return sum(map(estimate_item, items))


def estimate_item(item: Item) -> int:
    """Estimate the tokens of one item."""
    match item:
        case Message(content=content):
            return TOKENS_PER_ITEM + _estimate_contents(content)
        case FunctionCall(name=name, arguments=arguments):
            return TOKENS_PER_ITEM + estimate_text(name) + estimate_text(arguments)
        case FunctionCallOutput(output=output):
            return TOKENS_PER_ITEM + (
                estimate_text(output) if isinstance(output, str) else _estimate_contents(output)
            )
        case Reasoning(summary=summary, content=content):
            return (
                TOKENS_PER_ITEM
                + _estimate_contents(summary)
                + (_estimate_contents(content) if content else 0)
            )
        case _:
            return TOKENS_PER_ITEM + estimate_text(encode(item).decode())


def estimate_prompt(instructions: str | None, tools: Sequence[Tool], items: Iterable[Item]) -> int:
    """Estimate the input tokens of a model: instructions, tools and items."""
    offered = estimate_text(encode(list(tools)).decode()) if tools else 0
    return estimate_text(instructions or "") + offered + estimate_items(items)


def _estimate_contents(content: Iterable[Content]) -> int:
    return sum(map(_estimate_content, content))


def _estimate_content(part: Content) -> int:
    match part:
        case InputImage():
            return TOKENS_PER_IMAGE
        case InputVideo():
            return TOKENS_PER_VIDEO
        case InputFile(file_data=data):
            return TOKENS_PER_IMAGE + (len(data) // 8 if data else 0)
        case _:
            return estimate_text(content_text(part))

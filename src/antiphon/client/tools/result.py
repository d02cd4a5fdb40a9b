"""What a tool gave back, as the output that a model reads."""

from collections.abc import Sequence, Set
from dataclasses import is_dataclass
from enum import Enum
from typing import cast

import msgspec

from antiphon.client.tools.annotations import dumped
from antiphon.client.tools.pydantic_types import is_model
from antiphon.core.content import Content, InputFile, InputImage, InputText, InputVideo
from antiphon.core.surrogates import mend
from antiphon.core.value import Value, encode

Output = str | list[Content]

PARTS = InputText | InputImage | InputFile | InputVideo
"""What a model may be given to look at."""


def output(value: object) -> Output:
    """Write a result for the model: text as it is, content as content, data as JSON."""
    match value:
        case None:
            return ""
        case Enum():
            return output(cast("object", value.value))
        case InputText() | InputImage() | InputFile() | InputVideo():
            return [value]
        case list() | tuple() if content := _content(cast("Sequence[object]", value)):
            return content
        case _ if _is_data(value):
            return _json(value)
        case _:
            return mend(str(value))


def _content(values: Sequence[object]) -> list[Content]:
    """Return a result that is nothing but content, or an empty list."""
    content: list[Content] = [value for value in values if isinstance(value, PARTS)]
    return content if len(content) == len(values) else []


def _is_data(value: object) -> bool:
    plain_data = isinstance(value, bool | int | float | dict | list | tuple | Set | msgspec.Struct)
    return plain_data or is_dataclass(value) or is_model(value)


def _json(value: object) -> str:
    try:
        if isinstance(value, Value):
            return encode(value).decode()
        return msgspec.json.encode(value, enc_hook=_word).decode()
    except (TypeError, ValueError, RecursionError):
        return mend(str(value))  # strange keys, half a character, or a value within itself


def _word(value: object) -> object:
    return dumped(value) if is_model(value) else str(value)

"""What a tool gave back, as the output that a model reads."""

from collections.abc import Sequence, Set
from dataclasses import is_dataclass
from enum import Enum
from typing import cast

import msgspec

from antiphon.client.tools.type_schemas import encode_model, is_pydantic_model
from antiphon.protocol.content import (
    Content,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
)
from antiphon.protocol.struct import ProtocolStruct, encode
from antiphon.protocol.surrogates import repair_surrogates

ToolOutput = str | list[Content]

CONTENT_TYPES = InputText | InputImage | InputFile | InputVideo
"""What a model may be given to look at."""


def build_output(value: object) -> ToolOutput:
    """Write a result for the model: text as it is, content as content, data as JSON."""
    match value:
        case None:
            return ""
        case Enum():
            return build_output(cast("object", value.value))
        case InputText() | InputImage() | InputFile() | InputVideo():
            return [value]
        case list() | tuple() if content := _as_content(cast("Sequence[object]", value)):
            return content
        case _ if _is_data(value):
            return _encode_json(value)
        case _:
            return repair_surrogates(str(value))


def _as_content(values: Sequence[object]) -> list[Content]:
    """Return a result that is nothing but content, or an empty list."""
    content: list[Content] = [value for value in values if isinstance(value, CONTENT_TYPES)]
    return content if len(content) == len(values) else []


def _is_data(value: object) -> bool:
    plain_data = isinstance(value, bool | int | float | dict | list | tuple | Set | msgspec.Struct)
    return plain_data or is_dataclass(value) or is_pydantic_model(value)


def _encode_json(value: object) -> str:
    try:
        if isinstance(value, ProtocolStruct):
            return encode(value).decode()
        return msgspec.json.encode(value, enc_hook=_encode_other).decode()
    except (TypeError, ValueError, RecursionError):
        return repair_surrogates(
            str(value)
        )  # strange keys, half a character, or a value within itself


def _encode_other(value: object) -> object:
    return encode_model(value) if is_pydantic_model(value) else str(value)

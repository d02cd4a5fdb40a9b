from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, BinaryIO, Self

class LLMRole(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    FUNCTION = "function"

class LLMMessageContentType(StrEnum):
    TEXT = "text"
    IMAGE = "image"

class LLMMessageContent:
    type: LLMMessageContentType
    text: str | None
    image: str | None
    def __init__(self, *, type: LLMMessageContentType, text: str | None = None, image: str | None = None) -> None: ...

class LLMFunctionCall:
    id: str
    name: str
    arguments: dict[str, Any]
    def __init__(self, *, id: str, name: str, arguments: dict[str, Any]) -> None: ...

class LLMFunctionResult:
    id: str
    content: str
    def __init__(self, *, id: str, name: str, content: str) -> None: ...

class LLMMessage:
    role: LLMRole
    content: list[LLMMessageContent]
    tool_calls: list[LLMFunctionCall] | None
    tool_results: list[LLMFunctionResult] | None
    def __init__(
        self,
        *,
        role: LLMRole,
        content: Sequence[LLMMessageContent] = ...,
        tool_calls: Sequence[LLMFunctionCall] | None = None,
        tool_results: Sequence[LLMFunctionResult] | None = None,
    ) -> None: ...
    @classmethod
    def system(cls, content: str) -> LLMMessage: ...

class ToolParameter:
    def __init__(
        self,
        *,
        type: str,
        description: str | None = None,
        required: bool = False,
        default: object = None,
        enum: list[str] | None = None,
    ) -> None: ...

class Tool:
    name: str
    def __init__(self, *, name: str, description: str, parameters: Mapping[str, ToolParameter]) -> None: ...

class ToolResult:
    success: bool
    result: object
    error: str | None

class LLMOptions:
    functions: list[Tool] | None
    def __init__(self) -> None: ...
    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...

class LLMUsage:
    prompt_tokens: int
    completion_tokens: int

class LLMResponse:
    content: str | None
    tool_calls: list[LLMFunctionCall] | None
    usage: LLMUsage | None
    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...

class FileType(Enum):
    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"

class FileAttachment:
    content: BinaryIO
    type: FileType
    def __init__(self, content: BinaryIO, type: FileType) -> None: ...

class ToolCallEvent:
    id: str
    name: str
    arguments: dict[str, Any]

class ToolResultEvent:
    id: str
    success: bool
    result: object
    error: str | None

class UsageEvent(LLMUsage): ...

class Response:
    text: str | None
    attachments: list[FileAttachment]
    events: list[object]
    def __init__(self, text: str | None = None, attachments: list[FileAttachment] | None = None) -> None: ...

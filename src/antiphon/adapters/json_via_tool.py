"""JSON from a model that has no JSON mode: the answer is a tool that it must call.

The tool's parameters are the schema, and its arguments, as they come, are the text of the answer.
If there are other tools too, the model must call one of them or this one. Of a model that lacks
`tool_choice` nothing can be demanded, and it is offered the tool. What comes is checked against the
schema at the end: an answer that does not satisfy it is a failure, never completed. A schema is the
client's, and may name addresses; nothing is ever fetched for it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.features import format_feature, remove_unsupported
from antiphon.protocol import parts
from antiphon.protocol.items import call_key
from antiphon.protocol.json_schema import SchemaValidator
from antiphon.protocol.parts import Part
from antiphon.protocol.request import JsonSchemaFormat, Request, TextConfig
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import (
    AllowedTools,
    FunctionTool,
    FunctionToolChoice,
    ToolChoice,
)
from antiphon.transport.request import Upstream
from antiphon.wire import json

ANSWER_TOOL_NAME = "final_answer"
ANY_OBJECT: dict[str, object] = {"type": "object", "additionalProperties": True}


def needs_answer_tool(adapter: Adapter, prompt: Prompt) -> bool:
    """Tell whether a prompt's format has to be had by force."""
    wanted = format_feature(prompt.request)
    if wanted is None:
        return False
    has = adapter.available_features(prompt)
    together = not prompt.request.tools or "tools_with_format" in has
    return not (wanted in has and together)


def add_answer_tool(adapter: Adapter, prompt: Prompt) -> Prompt:
    """Return the prompt with the answer as a tool."""
    request = prompt.request
    tool = FunctionTool(
        name=answer_tool_name(request),
        description="Give the final answer. Call this once, when it is ready, and write no text.",
        parameters=answer_schema(request),
    )
    answer = FunctionToolChoice(name=tool.name)
    choice = answer_tool_choice(request, answer)
    tools = [tool] if choice == answer else [*request.tools, tool]
    if "tool_choice" not in adapter.available_features(prompt):
        choice = "auto"
    text = TextConfig(verbosity=request.text.verbosity)
    return replace(prompt, request=replace(request, tools=tools, tool_choice=choice, text=text))


def answer_tool_choice(request: Request, answer: FunctionToolChoice) -> ToolChoice:
    """Return what must be called: the answer's tool, or one of those that may be."""
    match request.tool_choice:
        case "none" | AllowedTools(mode="none"):
            return answer
        case "auto" | "required":
            return "required" if request.tools else answer
        case AllowedTools(tools=allowed):
            return AllowedTools(tools=[*allowed, answer], mode="required")
        case choice:
            return choice


def answer_schema(request: Request) -> dict[str, object]:
    """Return the schema that the answer must satisfy."""
    format = request.text.format
    return (format.schema if isinstance(format, JsonSchemaFormat) else None) or ANY_OBJECT


def answer_tool_name(request: Request) -> str:
    """Return a name for the answer's tool that no other tool has."""
    taken = {tool.name for tool in request.tools if isinstance(tool, FunctionTool)}
    name = ANSWER_TOOL_NAME
    while name in taken:
        name += "_"
    return name


class AnswerToolDecoder(Decoder):
    """Hears another decoder, and takes the answer's tool for text."""

    def __init__(self, inner: Decoder, request: Request) -> None:
        super().__init__(inner.adapter, inner.framing)
        self._inner = inner
        self._name = answer_tool_name(request)
        self._schema = answer_schema(request)
        self._answer_keys: set[parts.Key] = set()
        self._has_calls = False
        self._has_refusal = False
        self._answer_pieces: list[str] = []
        self._held_parts: list[Part] = []
        self._schema_failure: list[Part] = []
        """That the answer is wrong; told last, for usage may follow the end."""

    def is_stream(self, content_type: str) -> bool:
        """Leave it to the other."""
        return self._inner.is_stream(content_type)

    def feed(self, data: bytes | None) -> list[Part]:
        """Hear some bytes."""
        told = self._convert(self._inner.feed(data))
        return [*told, *self._take_schema_failure()] if self.done else told

    def close(self) -> list[Part]:
        """Hear the end."""
        return [*self._convert(self._inner.close()), *self._take_schema_failure()]

    def feed_whole(self, body: bytes) -> list[Part]:
        """Hear a whole answer."""
        return [*self._convert(self._inner.feed_whole(body)), *self._take_schema_failure()]

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Leave it to the other."""
        return self._inner.decode_chunk(chunk)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Leave it to the other."""
        return self._inner.decode_body(body)

    def _convert(self, decoded: list[Part]) -> list[Part]:
        told: list[Part] = []
        for part in decoded:
            told += self._convert_part(part)
        self.finished, self.done = self._inner.finished, self._inner.done
        return told

    def _convert_part(self, part: Part) -> list[Part]:
        match part:
            case parts.Call() if self._is_answer(part):
                return [self._answer_text(part)]
            case parts.Text() | parts.Annotation():
                if not self._answer_keys:
                    self._held_parts.append(part)
                return []
            case parts.Finish(reason="stop" | "tool_calls"):
                return [*self._release_held(), *self._finish_parts(part)]
            case parts.Call():
                self._has_calls = True
                self._answer_keys.discard(part.key)
            case parts.Whole() if call_key(part.item):
                self._has_calls = True
            case parts.Refusal():
                self._has_refusal = True
            case parts.Finish() | parts.Failure():
                pass
            case _:
                return [part]
        return [*self._release_held(), part]

    def _is_answer(self, part: parts.Call) -> bool:
        return part.name == self._name or (not part.name and part.key in self._answer_keys)

    def _answer_text(self, part: parts.Call) -> Part:
        if not self._answer_keys:
            self._answer_pieces = []
        self._answer_keys.add(part.key)
        self._answer_pieces.append(part.arguments)
        self._held_parts.clear()  # what it said on the way is not part of the answer
        return parts.Text(part.arguments, key="answer")

    def _release_held(self) -> list[Part]:
        """Return the text that was held back until it was clear what it is."""
        held, self._held_parts = self._held_parts, []
        if not self._answer_keys:  # it would not call, and may have answered all the same
            self._answer_pieces += [part.text for part in held if isinstance(part, parts.Text)]
        return held

    def _finish_parts(self, part: parts.Finish) -> list[Part]:
        if self._has_refusal or (self._has_calls and not self._answer_keys):
            return [part]
        told: list[Part] = []
        if self._answer_keys and not "".join(self._answer_pieces).strip():
            self._answer_pieces = ["{}"]  # arguments that are none
            told.append(parts.Text("{}", key="answer"))
        if problem := find_mismatch("".join(self._answer_pieces), self._schema):
            fault = ErrorInfo(
                f"the answer does not satisfy text.format: {problem}",
                "model_error",
                "invalid_structured_output",
            )
            self._schema_failure = [self.adapter.failure_part(fault)]
            return told
        return [*told, part if self._has_calls else parts.Finish("stop", part.raw)]

    def _take_schema_failure(self) -> list[Part]:
        verdict, self._schema_failure = self._schema_failure, []
        return [] if self._inner.failed else verdict


def find_mismatch(text: str, schema: dict[str, object]) -> str | None:
    """Say how a text fails to be JSON that satisfies a schema, if it does."""
    try:
        value = json.decode(repair_surrogates(text).encode())
    except json.JSONError as error:
        return str(error)
    return next((problem[:200] for problem in SchemaValidator(schema).problems(value)), None)


def encode_prompt(adapter: Adapter, prompt: Prompt) -> tuple[Upstream, Decoder]:
    """Write a prompt for a provider; raises RequestError for what it cannot carry.

    What it left out is in the prompt's warnings afterwards.
    """
    given = remove_unsupported(adapter, prompt)
    if not needs_answer_tool(adapter, given):
        return adapter.encode(given), adapter.decoder(given)
    asked = add_answer_tool(adapter, given)
    return adapter.encode(asked), AnswerToolDecoder(adapter.decoder(asked), given.request)

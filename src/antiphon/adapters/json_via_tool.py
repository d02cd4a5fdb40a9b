"""JSON output from models without a JSON mode, by a tool call that holds the answer.

The schema becomes the parameters of a tool, and the arguments of its call become the text of the answer. If the request
has other tools, the model must call one of them or this one. A model without `tool_choice` cannot be forced, so the
tool is only offered. At the end the answer is validated: an answer that does not satisfy the schema is a failure.

`encode_prompt` is the entry point of `antiphon.adapters` for every request: it filters a prompt, adds
the tool if it is needed, and returns the request with its decoder.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.features import format_feature, remove_unsupported
from antiphon.protocol import parts
from antiphon.protocol.items import call_key
from antiphon.protocol.json_schema import SchemaValidator
from antiphon.protocol.parts import Part
from antiphon.protocol.request import JsonSchemaFormat, Request, TextConfig
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import AllowedTools, FunctionTool, FunctionToolChoice, ToolChoice
from antiphon.transport.request import Upstream
from antiphon.wire import json

ANSWER_TOOL_NAME = "final_answer"
ANY_OBJECT: dict[str, object] = {"type": "object", "additionalProperties": True}


def make_answer_tool(request: Request) -> FunctionTool:
    """Return the tool for the answer, with a name that none of the client's tools has."""
    taken = {tool.name for tool in request.tools if isinstance(tool, FunctionTool)}
    name = ANSWER_TOOL_NAME
    while name in taken:
        name += "_"
    format = request.text.format
    return FunctionTool(
        name=name,
        description="Give the final answer. Call this once, when it is ready, and write no text.",
        parameters=(format.schema if isinstance(format, JsonSchemaFormat) else None) or ANY_OBJECT,
    )


def add_answer_tool(adapter: Adapter, prompt: Prompt, tool: FunctionTool) -> Prompt:
    """Return the prompt with the tool for the answer in place of its format."""
    request = prompt.request
    answer = FunctionToolChoice(name=tool.name)
    choice = answer_tool_choice(request, answer)
    # If only the answer may be called, other tools would just mislead the model.
    tools = [tool] if choice == answer else [*request.tools, tool]
    if "tool_choice" not in adapter.available_features(prompt):
        choice = "auto"
    text = TextConfig(verbosity=request.text.verbosity)
    return replace(prompt, request=replace(request, tools=tools, tool_choice=choice, text=text))


def answer_tool_choice(request: Request, answer: FunctionToolChoice) -> ToolChoice:
    """Return the tool choice that leads to the answer, or to a tool that the client allows."""
    match request.tool_choice:
        # The client forbids its own tools, not the answer.
        case "none" | AllowedTools(mode="none"):
            return answer
        case "auto" | "required":
            return "required" if request.tools else answer
        case AllowedTools(tools=allowed):
            return AllowedTools(tools=[*allowed, answer], mode="required")
        case choice:
            return choice


class AnswerToolDecoder(Decoder):
    """Wraps a decoder: the call of the answer's tool becomes text, and the text is validated."""

    def __init__(self, inner: Decoder, tool: FunctionTool) -> None:
        super().__init__(inner.adapter, inner.framing)
        self._inner = inner
        self._name = tool.name
        self._schema = tool.parameters or ANY_OBJECT
        self._answer_keys: set[parts.Key] = set()
        self._has_refusal = False
        self._answer_pieces: list[str] = []
        self._held_parts: list[Part] = []
        self._schema_failure: parts.Failure | None = None
        """The failure of an invalid answer. It comes last, because usage may follow the finish."""

    def is_stream(self, content_type: str) -> bool:
        return self._inner.is_stream(content_type)

    def feed(self, data: bytes | None) -> list[Part]:
        return self._convert(self._inner.feed(data), at_end=False)

    def close(self) -> list[Part]:
        return self._convert(self._inner.close(), at_end=True)

    def feed_whole(self, body: bytes) -> list[Part]:
        return self._convert(self._inner.feed_whole(body), at_end=True)

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        return self._inner.decode_chunk(chunk)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        return self._inner.decode_body(body)

    def _convert(self, decoded: list[Part], *, at_end: bool) -> list[Part]:
        converted: list[Part] = []
        for part in decoded:
            converted += self._convert_part(part)
        self.finished, self.done = self._inner.finished, self._inner.done
        if self._schema_failure and (self.done or at_end) and not self._inner.failed:
            converted.append(self._schema_failure)
            self._schema_failure = None
        return converted

    def _convert_part(self, part: Part) -> list[Part]:
        match part:
            case parts.Call(name=name, key=key) if name == self._name or (not name and key in self._answer_keys):
                return [self._answer_text(part)]
            case parts.Text() | parts.Annotation():
                if not self._answer_keys:
                    self._held_parts.append(part)
                return []
            # Only a regular end is validated: a truncated answer is incomplete in any case.
            case parts.Finish(reason="stop" | "tool_calls"):
                return [*self._release_held(), *self._finish_parts(part)]
            case parts.Call():
                self.has_calls = True
                self._answer_keys.discard(part.key)
            case parts.Whole() if call_key(part.item):
                self.has_calls = True
            case parts.Refusal():
                self._has_refusal = True
            case parts.Finish() | parts.Failure():
                pass
            case _:
                return [part]
        return [*self._release_held(), part]

    def _answer_text(self, part: parts.Call) -> Part:
        if not self._answer_keys:
            self._answer_pieces = []
        self._answer_keys.add(part.key)
        self._answer_pieces.append(part.arguments)
        # Text before the call is a comment of the model, not part of the answer.
        self._held_parts.clear()
        return parts.Text(part.arguments, key="answer")

    def _release_held(self) -> list[Part]:
        """Return the text that was held back while the tool might still be called."""
        held, self._held_parts = self._held_parts, []
        if not self._answer_keys:  # without a call, the text itself may be the answer
            self._answer_pieces += [part.text for part in held if isinstance(part, parts.Text)]
        return held

    def _finish_parts(self, part: parts.Finish) -> list[Part]:
        if self._has_refusal or (self.has_calls and not self._answer_keys):
            return [part]
        converted: list[Part] = []
        if self._answer_keys and not "".join(self._answer_pieces).strip():
            self._answer_pieces = ["{}"]  # a call without arguments is an empty object
            converted.append(parts.Text("{}", key="answer"))
        if problem := find_mismatch("".join(self._answer_pieces), self._schema):
            message = f"the answer does not satisfy text.format: {problem}"
            self._schema_failure = self.model_failure(message, "invalid_structured_output")
            return converted
        return [*converted, part if self.has_calls else parts.Finish("stop", part.raw)]


def find_mismatch(text: str, schema: dict[str, object]) -> str | None:
    """Return why a text is not JSON that satisfies a schema; None if it is."""
    try:
        # The schema is the client's. The validator never fetches an address that it refers to.
        value = json.decode(repair_surrogates(text).encode())
    except json.JSONError as error:
        return str(error.__cause__ or error)  # without the advice, which is for a client
    return next((problem[:200] for problem in SchemaValidator(schema).problems(value)), None)


def encode_prompt(adapter: Adapter, prompt: Prompt) -> tuple[Upstream, Decoder]:
    """Return the provider's request for a prompt, and the decoder of its answer.

    Raises RequestError for what the provider does not support. The prompt's warnings name what was dropped.
    """
    supported = remove_unsupported(adapter, prompt)
    if feature := format_feature(supported.request):
        available = adapter.available_features(supported)
        works_with_tools = not supported.request.tools or "tools_with_format" in available
        if not (feature in available and works_with_tools):
            tool = make_answer_tool(supported.request)
            forced = add_answer_tool(adapter, supported, tool)
            return adapter.encode(forced), AnswerToolDecoder(adapter.decoder(forced), tool)
    return adapter.encode(supported), adapter.decoder(supported)

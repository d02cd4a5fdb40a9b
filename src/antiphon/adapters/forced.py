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
from antiphon.adapters.carry import feature_of
from antiphon.adapters.faults import Fault
from antiphon.adapters.validity import Validity
from antiphon.core import parts
from antiphon.core.items import called
from antiphon.core.parts import Part
from antiphon.core.request import JsonSchemaFormat, Request, TextConfig
from antiphon.core.surrogates import mend
from antiphon.core.tools import AllowedTools, FunctionTool, FunctionToolChoice, ToolChoice
from antiphon.wire import json

NAME = "final_answer"
ANY_OBJECT: dict[str, object] = {"type": "object", "additionalProperties": True}


def needed(adapter: Adapter, prompt: Prompt) -> bool:
    """Tell whether a prompt's format has to be had by force."""
    wanted = feature_of(prompt.request)
    if wanted is None:
        return False
    has = adapter.has(prompt)
    together = not prompt.request.tools or "tools_with_format" in has
    return not (wanted in has and together)


def forced(adapter: Adapter, prompt: Prompt) -> Prompt:
    """Return the prompt with the answer as a tool."""
    request = prompt.request
    tool = FunctionTool(
        name=name_for(request),
        description="Give the final answer. Call this once, when it is ready, and write no text.",
        parameters=schema_of(request),
    )
    answer = FunctionToolChoice(name=tool.name)
    choice = demanded(request, answer)
    tools = [tool] if choice == answer else [*request.tools, tool]
    if "tool_choice" not in adapter.has(prompt):
        choice = "auto"
    text = TextConfig(verbosity=request.text.verbosity)
    return replace(prompt, request=replace(request, tools=tools, tool_choice=choice, text=text))


def demanded(request: Request, answer: FunctionToolChoice) -> ToolChoice:
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


def schema_of(request: Request) -> dict[str, object]:
    """Return the schema that the answer must satisfy."""
    format = request.text.format
    return (format.schema if isinstance(format, JsonSchemaFormat) else None) or ANY_OBJECT


def name_for(request: Request) -> str:
    """Return a name for the answer's tool that no other tool has."""
    taken = {tool.name for tool in request.tools if isinstance(tool, FunctionTool)}
    name = NAME
    while name in taken:
        name += "_"
    return name


class ForcedDecoder(Decoder):
    """Hears another decoder, and takes the answer's tool for text."""

    def __init__(self, inner: Decoder, request: Request) -> None:
        super().__init__(inner.adapter, inner.framing)
        self._inner = inner
        self._name = name_for(request)
        self._schema = schema_of(request)
        self._keys: set[parts.Key] = set()
        self._calls = False
        self._refused = False
        self._said: list[str] = []
        self._held: list[Part] = []
        self._verdict: list[Part] = []
        """That the answer is wrong; told last, for usage may follow the end."""

    def hears(self, content_type: str) -> bool:
        """Leave it to the other."""
        return self._inner.hears(content_type)

    def feed(self, data: bytes | None) -> list[Part]:
        """Hear some bytes."""
        told = self._changed(self._inner.feed(data))
        return [*told, *self._judged()] if self.done else told

    def close(self) -> list[Part]:
        """Hear the end."""
        return [*self._changed(self._inner.close()), *self._judged()]

    def whole(self, body: bytes) -> list[Part]:
        """Hear a whole answer."""
        return [*self._changed(self._inner.whole(body)), *self._judged()]

    def read(self, chunk: object) -> Iterable[Part]:
        """Leave it to the other."""
        return self._inner.read(chunk)

    def read_whole(self, body: bytes) -> Iterable[Part]:
        """Leave it to the other."""
        return self._inner.read_whole(body)

    def _changed(self, heard: list[Part]) -> list[Part]:
        told: list[Part] = []
        for part in heard:
            told += self._part(part)
        self.finished, self.done = self._inner.finished, self._inner.done
        return told

    def _part(self, part: Part) -> list[Part]:
        match part:
            case parts.Call() if self._is_answer(part):
                return [self._answer(part)]
            case parts.Text() | parts.Annotation():
                if not self._keys:
                    self._held.append(part)
                return []
            case parts.Finish(reason="stop" | "tool_calls"):
                return [*self._release(), *self._finish(part)]
            case parts.Call():
                self._calls = True
                self._keys.discard(part.key)
            case parts.Whole() if called(part.item):
                self._calls = True
            case parts.Refusal():
                self._refused = True
            case parts.Finish() | parts.Failure():
                pass
            case _:
                return [part]
        return [*self._release(), part]

    def _is_answer(self, part: parts.Call) -> bool:
        return part.name == self._name or (not part.name and part.key in self._keys)

    def _answer(self, part: parts.Call) -> Part:
        if not self._keys:
            self._said = []
        self._keys.add(part.key)
        self._said.append(part.arguments)
        self._held.clear()  # what it said on the way is not part of the answer
        return parts.Text(part.arguments, key="answer")

    def _release(self) -> list[Part]:
        """Return the text that was held back until it was clear what it is."""
        held, self._held = self._held, []
        if not self._keys:  # it would not call, and may have answered all the same
            self._said += [part.text for part in held if isinstance(part, parts.Text)]
        return held

    def _finish(self, part: parts.Finish) -> list[Part]:
        if self._refused or (self._calls and not self._keys):
            return [part]
        told: list[Part] = []
        if self._keys and not "".join(self._said).strip():
            self._said = ["{}"]  # arguments that are none
            told.append(parts.Text("{}", key="answer"))
        if problem := mismatch("".join(self._said), self._schema):
            fault = Fault(
                f"the answer does not satisfy text.format: {problem}",
                "model_error",
                "invalid_structured_output",
            )
            self._verdict = [self.adapter.failure(fault)]
            return told
        return [*told, part if self._calls else parts.Finish("stop", part.raw)]

    def _judged(self) -> list[Part]:
        verdict, self._verdict = self._verdict, []
        return [] if self._inner.failed else verdict


def mismatch(text: str, schema: dict[str, object]) -> str | None:
    """Say how a text fails to be JSON that satisfies a schema, if it does."""
    try:
        value = json.decode(mend(text).encode())
    except json.JSONError as error:
        return str(error)
    return next((problem[:200] for problem in Validity(schema).problems(value)), None)

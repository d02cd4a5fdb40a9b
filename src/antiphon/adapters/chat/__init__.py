"""Chat Completions, asked: the dialect that OpenAI made and most servers speak.

Dialect notes: what only OpenAI's own implementation has, and what other servers call otherwise,
stands in `Habits`; a server is an address, its habits and the features it carries. Messages are
written in `conversation.py`, answers heard in `answer.py`. What a server refuses in the words of
`refusals.py` is asked in another way.
"""

from copy import copy
from typing import ClassVar

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.carry import ALL
from antiphon.adapters.chat import refusals
from antiphon.adapters.chat.answer import ChatDecoder
from antiphon.adapters.chat.conversation import Habits, Messages
from antiphon.adapters.fields import Fields, fields_of, given, without
from antiphon.adapters.options import wants_logprobs
from antiphon.adapters.responses import Responses
from antiphon.core.custom import tool_of
from antiphon.core.errors import UpstreamError
from antiphon.core.items import CUSTOM_CALL, CUSTOM_OUTPUT
from antiphon.core.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.core.tools import (
    AllowedTools,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionToolChoice,
    Tool,
    ToolChoice,
    may_call,
)
from antiphon.wire.upstream import Upstream

SAME = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
"""The fields that have the same name and meaning on both sides."""

NATIVE = frozenset(ALL - {"file_urls", "max_tool_calls", "videos"})
"""What OpenAI's own implementation carries."""


class Chat(Adapter):
    """A server that speaks Chat Completions."""

    carries = NATIVE
    item_types = frozenset({CUSTOM_CALL, CUSTOM_OUTPUT})
    path: ClassVar[str] = "/chat/completions"
    habits = Habits()
    learns = refusals.FEATURES
    """What a server may be found to lack, by its refusing it."""

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as a chat request."""
        messages = Messages(prompt, self.habits).write()
        body: Fields = {"model": prompt.model, "messages": messages}
        body |= self.options(prompt)
        if prompt.request.tools:
            body |= self.tools(prompt)
        if prompt.stream:
            body["stream"] = True
            if self.habits.counts:
                body["stream_options"] = {"include_usage": True}
        return Upstream(url=self.url(prompt), body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return ChatDecoder(self)

    def instead(self, error: UpstreamError) -> Adapter | None:
        """Return Responses for a model that chat does not have, or this one asking for less."""
        said = error.payload.message.removeprefix(f"{self.provider.name}: ")
        if refusals.wants_responses(error.status, said):
            url = self.responses_url()
            return Responses(replace(self.provider, base_url=url), chats=False) if url else None
        found = refusals.lacked(error.status, said)
        if found is None or found not in self.learns - self.lacking:
            return None
        other = copy(self)
        other.lacking = self.lacking | {found}
        return other

    def responses_url(self) -> str | None:
        """Return the base at which the same server has Responses, if it may have them."""
        return None

    def url(self, prompt: Prompt) -> str:
        """Return the address that a prompt is sent to."""
        del prompt
        return f"{self.base_url}{self.path}"

    # --- options ---

    def options(self, prompt: Prompt) -> Fields:
        """Write what is asked for beside messages and tools."""
        request = prompt.request
        said: Fields = {name: getattr(request, name) for name in SAME}
        said[self.habits.seed] = request.seed
        said[self.habits.limit] = request.max_output_tokens
        if wants_logprobs(request):
            said |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.service_tier not in ("auto", "default"):
            said["service_tier"] = request.service_tier
        said["verbosity"] = request.text.verbosity or None
        said["response_format"] = response_format(request)
        return given(said) | self.reasoning(prompt)

    def reasoning(self, prompt: Prompt) -> Fields:
        """Write how hard to think; there are no summaries in this dialect."""
        wanted = prompt.request.reasoning
        if wanted and wanted.summary:
            message = f"{self.provider.name} has no summaries of thinking; none was asked for."
            prompt.warn("unsupported_parameter", message, "reasoning.summary")
        return {"reasoning_effort": wanted.effort} if wanted and wanted.effort else {}

    # --- tools ---

    def tools(self, prompt: Prompt) -> Fields:
        """Write the tools, and which of them must be called."""
        request = prompt.request
        tools, choice, has = request.tools, request.tool_choice, self.has(prompt)
        if isinstance(choice, FunctionToolChoice) and refusals.NAMED_CHOICE in self.lacking:
            tools, choice = [tool for tool in tools if may_call(tool, choice)], "required"
        body: Fields = {"tools": [self.tool(tool) for tool in tools]}
        if choice != "auto":
            body["tool_choice"] = self.choice(choice)
        if not request.parallel_tool_calls and "parallel_tool_calls" in has:
            body["parallel_tool_calls"] = False
        return body

    def tool(self, tool: Tool) -> Fields:
        """Write one tool."""
        if isinstance(tool, ExtensionTool):
            description, form = tool.get("description"), grammar(tool.get("format"))
            return named("custom", tool_of(tool).name, description=description, format=form)
        shape = {"description": tool.description, "parameters": tool.parameters}
        return named("function", tool.name, **shape, strict=tool.strict)

    def choice(self, choice: ToolChoice) -> object:
        """Write which tool must be called."""
        match choice:
            case FunctionToolChoice(name=name):
                return named("function", name)
            case ExtensionToolChoice():
                return named("custom", str(choice.get("name")))
            case AllowedTools(mode="none"):
                return "none"
            case AllowedTools(mode=mode, tools=allowed):
                tools = [self.choice(tool) for tool in allowed]
                return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
            case _:
                return choice


def named(kind: str, name: str, **more: object) -> Fields:
    """Write something of a kind that has a name, and what is known of it."""
    return {"type": kind, kind: {"name": name, **given(more)}}


def grammar(format: object) -> object:
    """Write the format of a custom tool, whose grammar stands one level deeper in chat."""
    fields = fields_of(format)
    if "definition" not in fields:
        return fields or None
    return {"type": "grammar", "grammar": without(fields, ["type"])}


def response_format(request: Request) -> Fields | None:
    """Write the shape that the text must have, if it is not free."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema) as format if schema:
            more = {"description": format.description, "schema": schema}
            return named("json_schema", format.name, **more, strict=format.strict or None)
        case JsonSchemaFormat() | JsonObjectFormat():
            return {"type": "json_object"}
        case _:
            return None

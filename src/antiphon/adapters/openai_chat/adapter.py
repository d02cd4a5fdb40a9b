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
from antiphon.adapters.features import ALL_FEATURES, wants_logprobs
from antiphon.adapters.json_access import (
    JsonObject,
    as_object,
    drop_none,
    omit,
)
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai_chat import unsupported_errors
from antiphon.adapters.openai_chat.decode import ChatDecoder
from antiphon.adapters.openai_chat.encode import ChatQuirks, MessagesEncoder
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import CUSTOM_TOOL_CALL, CUSTOM_TOOL_CALL_OUTPUT
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.protocol.tools import (
    AllowedTools,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionToolChoice,
    Tool,
    ToolChoice,
    decode_custom_tool,
    may_call,
)
from antiphon.transport.request import Upstream

SHARED_FIELDS = (
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

OPENAI_FEATURES = frozenset(ALL_FEATURES - {"file_urls", "max_tool_calls", "videos"})
"""What OpenAI's own implementation carries."""


class ChatCompletions(Adapter):
    """A server that speaks Chat Completions."""

    features = OPENAI_FEATURES
    extension_items = frozenset({CUSTOM_TOOL_CALL, CUSTOM_TOOL_CALL_OUTPUT})
    path: ClassVar[str] = "/chat/completions"
    quirks = ChatQuirks()
    learnable_features = unsupported_errors.LEARNABLE_FEATURES
    """What a server may be found to lack, by its refusing it."""

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as a chat request."""
        messages = MessagesEncoder(prompt, self.quirks).encode()
        body: JsonObject = {"model": prompt.model, "messages": messages}
        body |= self.encode_options(prompt)
        if prompt.request.tools:
            body |= self.encode_tools(prompt)
        if prompt.stream:
            body["stream"] = True
            if self.quirks.requests_stream_usage:
                body["stream_options"] = {"include_usage": True}
        return Upstream(url=self.url(prompt), body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return ChatDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return Responses for a model that chat does not have, or this one asking for less."""
        said = error.payload.message.removeprefix(f"{self.provider.name}: ")
        if unsupported_errors.requires_responses(error.status, said):
            url = self.responses_url()
            return (
                OpenResponses(replace(self.provider, base_url=url), chat_fallback=False)
                if url
                else None
            )
        found = unsupported_errors.unsupported_feature(error.status, said)
        if found is None or found not in self.learnable_features - self.rejected_features:
            return None
        other = copy(self)
        other.rejected_features = self.rejected_features | {found}
        return other

    def responses_url(self) -> str | None:
        """Return the base at which the same server has Responses, if it may have them."""
        return None

    def url(self, prompt: Prompt) -> str:
        """Return the address that a prompt is sent to."""
        del prompt
        return f"{self.base_url}{self.path}"

    # --- options ---

    def encode_options(self, prompt: Prompt) -> JsonObject:
        """Write what is asked for beside messages and tools."""
        request = prompt.request
        said: JsonObject = {name: getattr(request, name) for name in SHARED_FIELDS}
        said[self.quirks.seed_field] = request.seed
        said[self.quirks.max_tokens_field] = request.max_output_tokens
        if wants_logprobs(request):
            said |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.service_tier not in ("auto", "default"):
            said["service_tier"] = request.service_tier
        said["verbosity"] = request.text.verbosity or None
        said["response_format"] = encode_response_format(request)
        return drop_none(said) | self.encode_reasoning(prompt)

    def encode_reasoning(self, prompt: Prompt) -> JsonObject:
        """Write how hard to think; there are no summaries in this dialect."""
        wanted = prompt.request.reasoning
        if wanted and wanted.summary:
            message = f"{self.provider.name} has no summaries of thinking; none was asked for."
            prompt.warn("unsupported_parameter", message, "reasoning.summary")
        return {"reasoning_effort": wanted.effort} if wanted and wanted.effort else {}

    # --- tools ---

    def encode_tools(self, prompt: Prompt) -> JsonObject:
        """Write the tools, and which of them must be called."""
        request = prompt.request
        tools, choice, has = request.tools, request.tool_choice, self.available_features(prompt)
        if (
            isinstance(choice, FunctionToolChoice)
            and unsupported_errors.NAMED_CHOICE in self.rejected_features
        ):
            tools, choice = [tool for tool in tools if may_call(tool, choice)], "required"
        body: JsonObject = {"tools": [self.encode_tool(tool) for tool in tools]}
        if choice != "auto":
            body["tool_choice"] = self.encode_tool_choice(choice)
        if not request.parallel_tool_calls and "parallel_tool_calls" in has:
            body["parallel_tool_calls"] = False
        return body

    def encode_tool(self, tool: Tool) -> JsonObject:
        """Write one tool."""
        if isinstance(tool, ExtensionTool):
            description, form = tool.get("description"), encode_grammar(tool.get("format"))
            return tagged_object(
                "custom", decode_custom_tool(tool).name, description=description, format=form
            )
        shape = {"description": tool.description, "parameters": tool.parameters}
        return tagged_object("function", tool.name, **shape, strict=tool.strict)

    def encode_tool_choice(self, choice: ToolChoice) -> object:
        """Write which tool must be called."""
        match choice:
            case FunctionToolChoice(name=name):
                return tagged_object("function", name)
            case ExtensionToolChoice():
                return tagged_object("custom", str(choice.get("name")))
            case AllowedTools(mode="none"):
                return "none"
            case AllowedTools(mode=mode, tools=allowed):
                tools = [self.encode_tool_choice(tool) for tool in allowed]
                return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
            case _:
                return choice


def tagged_object(kind: str, name: str, **more: object) -> JsonObject:
    """Write something of a kind that has a name, and what is known of it."""
    return {"type": kind, kind: {"name": name, **drop_none(more)}}


def encode_grammar(format: object) -> object:
    """Write the format of a custom tool, whose grammar stands one level deeper in chat."""
    fields = as_object(format)
    if "definition" not in fields:
        return fields or None
    return {"type": "grammar", "grammar": omit(fields, ["type"])}


def encode_response_format(request: Request) -> JsonObject | None:
    """Write the shape that the text must have, if it is not free."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema) as format if schema:
            more = {"description": format.description, "schema": schema}
            return tagged_object("json_schema", format.name, **more, strict=format.strict or None)
        case JsonSchemaFormat() | JsonObjectFormat():
            return {"type": "json_object"}
        case _:
            return None

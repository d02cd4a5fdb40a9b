"""The adapter for Chat Completions: options and tools of a request, and fallbacks.

A server is an address, its rules and the features it supports (`servers.py`). If a server rejects a request with a
message that `servers.py` knows, the request is repeated without the feature, or through the Responses API.
"""

from copy import copy
from typing import ClassVar

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.features import wants_logprobs
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai_chat import servers
from antiphon.adapters.openai_chat.decode import ChatDecoder
from antiphon.adapters.openai_chat.encode import ChatMessagesEncoder
from antiphon.adapters.openai_chat.servers import ChatServer
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import CUSTOM_TOOL_CALL, CUSTOM_TOOL_CALL_OUTPUT
from antiphon.protocol.request import JsonSchemaFormat, Request
from antiphon.protocol.struct import JsonObject, as_object, drop_none, omit
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

SHARED_FIELDS = tuple(
    "temperature top_p presence_penalty frequency_penalty stop prompt_cache_key safety_identifier user".split()
)
"""The fields with the same name and meaning in both APIs."""


class ChatCompletions(Adapter):
    """A server that speaks Chat Completions. Subclasses name one provider each."""

    extension_items = frozenset({CUSTOM_TOOL_CALL, CUSTOM_TOOL_CALL_OUTPUT})
    path: ClassVar[str] = "/chat/completions"
    server = ChatServer()

    def encode(self, prompt: Prompt) -> Upstream:
        messages = ChatMessagesEncoder(prompt, self.server).encode()
        body: JsonObject = {"model": prompt.model, "messages": messages}
        body |= self.encode_options(prompt)
        if prompt.request.tools:
            body |= self.encode_tools(prompt)
        if prompt.stream:
            body["stream"] = True
            if self.server.requests_stream_usage:
                body["stream_options"] = {"include_usage": True}
        return Upstream(url=self.url(prompt), body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        return ChatDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return the Responses API for a model that needs it, or this adapter with less."""
        message = error.payload.message.removeprefix(f"{self.provider.name}: ")
        if servers.requires_responses(error.status, message):
            url = self.responses_url()
            if url is None:
                return None
            # Without the fallback to chat: the server has just said that chat does not work.
            return OpenResponses(replace(self.provider, base_url=url), chat_fallback=False)
        feature = servers.unsupported_feature(error.status, message)
        if feature is None or feature not in self.server.learnable_features - self.rejected_features:
            return None
        # A copy, because requests that are under way still use this adapter.
        other = copy(self)
        other.rejected_features = self.rejected_features | {feature}
        return other

    def responses_url(self) -> str | None:
        """Return the base address of the same server's Responses API, if it may have one."""
        return None

    def url(self, prompt: Prompt) -> str:
        """Return the address to which a prompt is sent."""
        return f"{self.base_url}{self.path}"

    def encode_options(self, prompt: Prompt) -> JsonObject:
        """Encode everything but messages and tools."""
        request = prompt.request
        fields: JsonObject = {name: getattr(request, name) for name in SHARED_FIELDS}
        fields[self.server.seed_field] = request.seed
        fields[self.server.max_tokens_field] = request.max_output_tokens
        if wants_logprobs(request):
            fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.service_tier not in ("auto", "default"):
            fields["service_tier"] = request.service_tier
        fields["verbosity"] = request.text.verbosity or None
        fields["response_format"] = encode_response_format(request)
        if reasoning := request.reasoning:
            fields["reasoning_effort"] = reasoning.effort
            if reasoning.summary:
                message = f"{self.provider.name} has no reasoning summaries; none was requested."
                prompt.warn("unsupported_parameter", message, "reasoning.summary")
        return drop_none(fields)

    def encode_tools(self, prompt: Prompt) -> JsonObject:
        request = prompt.request
        tools, choice = request.tools, request.tool_choice
        rejects_name = servers.NAMED_CHOICE in self.rejected_features
        if rejects_name and isinstance(choice, FunctionToolChoice):
            # "Call any tool" with a single tool forces that tool without naming it.
            tools, choice = [tool for tool in tools if may_call(tool, choice)], "required"
        body: JsonObject = {"tools": [self.encode_tool(tool) for tool in tools]}
        if choice != "auto":
            body["tool_choice"] = self.encode_tool_choice(choice)
        available = self.available_features(prompt)
        if not request.parallel_tool_calls and "parallel_tool_calls" in available:
            body["parallel_tool_calls"] = False
        return body

    def encode_tool(self, tool: Tool) -> JsonObject:
        if isinstance(tool, ExtensionTool):
            name = decode_custom_tool(tool).name
            format = as_object(tool.get("format"))
            if "definition" in format:  # Chat Completions nests a grammar one level deeper
                format = {"type": "grammar", "grammar": omit(format, ["type"])}
            return tagged_object("custom", name, description=tool.get("description"), format=format or None)
        fields = {"description": tool.description, "parameters": tool.parameters}
        return tagged_object("function", tool.name, **fields, strict=tool.strict)

    def encode_tool_choice(self, choice: ToolChoice) -> object:
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


def tagged_object(tag: str, name: str, **fields: object) -> JsonObject:
    """Return `{"type": tag, tag: {"name": name, ...}}`, without the fields that are None."""
    return {"type": tag, tag: {"name": name, **drop_none(fields)}}


def encode_response_format(request: Request) -> JsonObject | None:
    """Encode the format of the text; None for plain text."""
    format = request.text.format
    if isinstance(format, JsonSchemaFormat) and format.schema:
        fields = {"description": format.description, "schema": format.schema}
        return tagged_object("json_schema", format.name, **fields, strict=format.strict or None)
    return None if format.type == "text" else {"type": "json_object"}

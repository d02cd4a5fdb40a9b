"""The adapter for Ollama's own chat API: its requests, addresses, errors and fallbacks."""

from collections.abc import Mapping
from typing import ClassVar

from antiphon.adapters import media
from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider, collect_names
from antiphon.adapters.conversation import EMPTY_CONVERSATION, ConversationTurn, encode_pieces, split_turns
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, nearest_effort, wants_logprobs
from antiphon.adapters.json_access import drop_empty, parse_arguments
from antiphon.adapters.ollama.decode import REASONS as REASONS
from antiphon.adapters.ollama.decode import OllamaDecoder, parse_ollama_error
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import Content, FunctionCallOutput, InputImage, Message, Reasoning, content_text
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.protocol.struct import JsonObject, drop_none
from antiphon.protocol.tools import FunctionTool
from antiphon.transport.request import Upstream


def encode_body(prompt: Prompt) -> JsonObject:
    """Encode a prompt; raises RequestError."""
    request = prompt.request
    body: JsonObject = {
        "model": prompt.model,
        "messages": encode_messages(prompt),
        "stream": prompt.stream,
        "options": encode_options(request),
        "format": encode_format(request),
        "think": encode_think(prompt),
        "tools": [encode_tool(tool) for tool in request.tools if isinstance(tool, FunctionTool)],
        "logprobs": wants_logprobs(request) or None,
        "top_logprobs": request.top_logprobs or None,
        # By default Ollama drops the start of a long conversation without a word.
        "truncate": False if request.truncation == "disabled" else None,
    }
    return drop_empty(body)


def encode_messages(prompt: Prompt) -> list[JsonObject]:
    """Encode a conversation as messages; raises RequestError."""
    messages: list[JsonObject] = []
    if prompt.request.instructions:
        messages.append({"role": "system", "content": prompt.request.instructions})
    names: dict[str, str] = {}
    for turn in split_turns(prompt.items):
        if turn.role == "assistant":
            names |= {call.call_id: call.name for call in turn.calls}
            messages += encode_assistant(turn)
        elif turn.role == "tool":
            messages += [encode_tool_result(prompt, output, names) for output in turn.outputs]
        else:
            for item in turn.items:
                if isinstance(item, Message):
                    messages.append({"role": turn.role, **encode_content(prompt, item)})
    # Ollama takes a request without messages as a command to load the model.
    if not messages:
        raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")
    return messages


def encode_assistant(turn: ConversationTurn) -> list[JsonObject]:
    """Encode a turn of the assistant; its own reasoning is sent back only beside calls."""
    texts = [item.text for item in turn.items if isinstance(item, Message)]
    text = "\n".join(filter(None, texts))
    if not (text or turn.calls):
        return []
    message: JsonObject = {"role": "assistant"}
    if text:
        message["content"] = text
    if calls := turn.calls:
        thinking = [
            content_text(part)
            for item in turn.items
            if isinstance(item, Reasoning) and item.encrypted_content
            for part in item.content or []
        ]
        if any(thinking):
            message["thinking"] = "".join(thinking)
        message["tool_calls"] = [
            {"id": call.call_id, "function": {"name": call.name, "arguments": parse_arguments(call.arguments)}}
            for call in calls
        ]
    return [message]


def encode_tool_result(prompt: Prompt, item: FunctionCallOutput, names: Mapping[str, str]) -> JsonObject:
    """Encode the output of a tool."""
    message: JsonObject = {"role": "tool", "tool_name": names.get(item.call_id, "")}
    return message | {"tool_call_id": item.call_id, **encode_content(prompt, item)}


def encode_content(prompt: Prompt, item: Message | FunctionCallOutput) -> JsonObject:
    """Encode the content of an item: all text as one string, and the images beside it."""
    images: list[str] = []

    def encode_part(part: Content) -> list[str]:
        if isinstance(part, InputImage):
            images.append(media.read_image(part).data)
        text = content_text(part)
        return [text] if text else []

    text = "\n".join(encode_pieces(prompt, item, encode_part))
    return {"content": text, **drop_empty({"images": images})}


def encode_tool(tool: FunctionTool) -> JsonObject:
    """Encode a function."""
    function = drop_empty({"name": tool.name, "description": tool.description})
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def encode_options(request: Request) -> JsonObject:
    """Encode the sampling options that the request sets."""
    fields = {
        "num_predict": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "stop": request.stop,
    }
    return drop_none(fields)


def encode_format(request: Request) -> object:
    """Encode the text format: a schema, `json`, or None for plain text."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema):
            return schema or "json"
        case JsonObjectFormat():
            return "json"
        case _:
            return None


def encode_think(prompt: Prompt) -> bool | str | None:
    """Encode the reasoning effort: three levels for gpt-oss, on or off for all other models."""
    reasoning = prompt.request.reasoning
    if reasoning is None:
        return None
    if reasoning.summary:
        message = "Ollama has no reasoning summaries; the reasoning itself is sent."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    effort = reasoning.effort
    if effort is None:
        return None
    if prompt.model.rpartition("/")[2].startswith("gpt-oss"):  # it cannot be switched off
        return nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)
    if effort == "none":
        return False
    nearest_effort(prompt, effort, {effort: "on"})
    return True


DEFAULT_PORT = "11434"
THINKING_UNSUPPORTED = "does not support thinking"
"""Part of the server's error for a model without reasoning."""


class Ollama(Adapter):
    """An Ollama server, or Ollama's cloud."""

    name = "ollama"
    default_url = f"http://127.0.0.1:{DEFAULT_PORT}"
    key_env = ("OLLAMA_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OLLAMA_HOST",)}
    features = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens logprobs
        reasoning tools json_object json_schema images""".split()
    )

    def __init__(self, provider: Provider, *, reasoning: bool = True) -> None:
        super().__init__(provider)
        # Ollama's documentation shows the address with the path of its own API, or of OpenAI's.
        self.base_url = self.base_url.removesuffix("/api").removesuffix("/v1")
        if not reasoning:
            self.features -= {"reasoning"}

    @classmethod
    def parse_variable(cls, field: str, value: str) -> str:
        """Return the address that OLLAMA_HOST means, by the rules of Ollama's own client.

        >>> [Ollama.parse_variable("base_url", host) for host in ("0.0.0.0", "gpu:80", "https://a/")]
        ['http://127.0.0.1:11434', 'http://gpu:80', 'https://a']
        """
        scheme, separator, rest = value.strip().rpartition("://")
        authority, slash, path = rest.partition("/")
        if authority.count(":") > 1 and not authority.startswith("["):
            authority = f"[{authority}]"
        host, colon, port = authority.rpartition(":")
        if not colon or "]" in port:
            host, port = authority, ""
        # The variable also tells a server which addresses to listen on. "All addresses" cannot be
        # connected to everywhere, so the client uses the loopback address.
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
        if not separator and not port:
            port = DEFAULT_PORT
        return f"{scheme or 'http'}://{host}{':' if port else ''}{port}{slash}{path}".rstrip("/")

    def encode(self, prompt: Prompt) -> Upstream:
        """Encode a prompt as a chat request."""
        return Upstream(url=f"{self.base_url}/api/chat", body=encode_body(prompt))

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return a decoder for the answer."""
        del prompt
        return OllamaDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return this adapter without reasoning, for a model that rejects `think`."""
        rejects_thinking = error.status == 400 and THINKING_UNSUPPORTED in error.payload.message
        if rejects_thinking and "reasoning" in self.features:
            return Ollama(self.provider, reasoning=False)
        return None

    def models_request(self) -> Upstream | None:
        """Return the request that lists the models on the server."""
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def decode_models(self, body: object) -> list[str]:
        """Return the names in the list of models."""
        return collect_names(body, "models", "name")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Return the error in a parsed body."""
        del status, headers
        return parse_ollama_error(body)

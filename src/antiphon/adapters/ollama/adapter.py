"""Ollama's own chat, spoken both ways; what it answers is heard in `answer.py`.

Dialect notes: arguments are objects, never strings; images are bare base64; there is no choice of
tools; thinking is plain text and goes back in `thinking`, but only to the server it came from, as
the mark in its seal tells.
"""

from collections.abc import Mapping
from typing import ClassVar

from antiphon.adapters import media
from antiphon.adapters.base import (
    Adapter,
    Decoder,
    Prompt,
    Provider,
    collect_names,
)
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    ConversationTurn,
    encode_pieces,
    split_turns,
)
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, nearest_effort, wants_logprobs
from antiphon.adapters.json_access import (
    JsonObject,
    drop_empty,
    drop_none,
    parse_arguments,
)
from antiphon.adapters.ollama.decode import REASONS as REASONS
from antiphon.adapters.ollama.decode import OllamaDecoder, parse_ollama_error
from antiphon.protocol.content import Content, InputImage, content_text
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import FunctionCallOutput, Message, Reasoning
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.protocol.tools import FunctionTool
from antiphon.transport.request import Upstream

DEFAULT_PORT = "11434"
THINKING_UNSUPPORTED = "does not support thinking"
"""What the server says of a model that cannot think."""


class Ollama(Adapter):
    """A server of Ollama, or its cloud."""

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
        # Its makers write its address with the path of its own dialect, or of OpenAI's.
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
        """Write a prompt as Ollama's request."""
        request = prompt.request
        body: JsonObject = {
            "model": prompt.model,
            "messages": encode_messages(prompt),
            "stream": prompt.stream,
            "options": encode_options(request),
            "format": encode_format(request),
            "think": encode_think(prompt),
            "tools": [encode_tool(t) for t in request.tools if isinstance(t, FunctionTool)],
            "logprobs": wants_logprobs(request) or None,
            "top_logprobs": request.top_logprobs or None,
            # Left to itself the server cuts a long history and says nothing.
            "truncate": False if request.truncation == "disabled" else None,
        }
        return Upstream(url=f"{self.base_url}/api/chat", body=drop_empty(body))

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return OllamaDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return this one without thinking, for a model that refuses to be told to think."""
        is_thoughtless = error.status == 400 and THINKING_UNSUPPORTED in error.payload.message
        if is_thoughtless and "reasoning" in self.features:
            return Ollama(self.provider, reasoning=False)
        return None

    def models_request(self) -> Upstream | None:
        """Describe the request that lists the models on the server."""
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def decode_models(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return collect_names(body, "models", "name")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body."""
        del status, headers
        return parse_ollama_error(body)


# --- what is sent ---------------------------------------------------------------------------------


def encode_messages(prompt: Prompt) -> list[JsonObject]:
    """Write a conversation as messages; raises RequestError."""
    told: list[JsonObject] = []
    if prompt.request.instructions:
        told.append({"role": "system", "content": prompt.request.instructions})
    names: dict[str, str] = {}
    for speech in split_turns(prompt.items):
        if speech.role == "assistant":
            names |= {call.call_id: call.name for call in speech.calls}
            told += encode_assistant(speech)
        elif speech.role == "tool":
            told += [encode_tool_result(prompt, output, names) for output in speech.outputs]
        else:
            for item in speech.items:
                if isinstance(item, Message):
                    told.append({"role": speech.role, **encode_content(prompt, item)})
    if not told:  # of a request without messages the server thinks that it shall load the model
        raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")
    return told


def encode_assistant(turn: ConversationTurn) -> list[JsonObject]:
    """Write what the model said, if it did; its own thinking goes with its calls alone."""
    said = [item.text for item in turn.items if isinstance(item, Message)]
    words = "\n".join(filter(None, said))
    if not (words or turn.calls):
        return []
    message: JsonObject = {"role": "assistant"}
    if words:
        message["content"] = words
    if calls := turn.calls:
        thoughts = [
            content_text(part)
            for item in turn.items
            if isinstance(item, Reasoning) and item.encrypted_content
            for part in item.content or []
        ]
        if thinking := "".join(thoughts):
            message["thinking"] = thinking
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "function": {"name": call.name, "arguments": parse_arguments(call.arguments)},
            }
            for call in calls
        ]
    return [message]


def encode_tool_result(
    prompt: Prompt, item: FunctionCallOutput, names: Mapping[str, str]
) -> JsonObject:
    """Write what a tool gave back."""
    told: JsonObject = {"role": "tool", "tool_name": names.get(item.call_id, "")}
    return told | {"tool_call_id": item.call_id, **encode_content(prompt, item)}


def encode_content(prompt: Prompt, item: Message | FunctionCallOutput) -> JsonObject:
    """Write the words in one string, and the images beside them."""
    images: list[str] = []

    def words(piece: Content) -> list[str]:
        if isinstance(piece, InputImage):
            images.append(media.read_image(piece).data)
        text = content_text(piece)
        return [text] if text else []

    text = "\n".join(encode_pieces(prompt, item, words))
    return {"content": text, **drop_empty({"images": images})}


def encode_tool(tool: FunctionTool) -> JsonObject:
    """Write a tool."""
    function = drop_empty({"name": tool.name, "description": tool.description})
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def encode_options(request: Request) -> JsonObject:
    """Write how the model samples, as far as the client said."""
    named = {
        "num_predict": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "stop": request.stop,
    }
    return drop_none(named)


def encode_format(request: Request) -> object:
    """Write the shape of the answer: a schema, any JSON, or nothing."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema):
            return schema or "json"
        case JsonObjectFormat():
            return "json"
        case _:
            return None


def encode_think(prompt: Prompt) -> bool | str | None:
    """Write how hard to think: three levels for gpt-oss, on or off for all others."""
    reasoning = prompt.request.reasoning
    if reasoning is None:
        return None
    if reasoning.summary:
        message = "Ollama writes no summaries; the thinking itself is told."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    effort = reasoning.effort
    if effort is None:
        return None
    if prompt.model.rpartition("/")[2].startswith("gpt-oss"):  # which always thinks
        return nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)
    if effort == "none":
        return False
    nearest_effort(prompt, effort, {effort: "on"})
    return True

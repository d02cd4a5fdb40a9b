"""Ollama's own chat, spoken both ways; what it answers is heard in `answer.py`.

Dialect notes: arguments are objects, never strings; images are bare base64; there is no choice of
tools; thinking is plain text and goes back in `thinking`, but only to the server it came from, as
the mark in its seal tells.
"""

from collections.abc import Mapping

from antiphon.adapters import media
from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider, names_in
from antiphon.adapters.faults import Fault
from antiphon.adapters.fields import Fields, arguments_in, filled, given
from antiphon.adapters.ollama.answer import REASONS as REASONS
from antiphon.adapters.ollama.answer import OllamaDecoder, fault_of
from antiphon.adapters.options import THREE, nearest, wants_logprobs
from antiphon.adapters.story import SILENCE, Speech, pieces, tell
from antiphon.core.content import Content, InputImage, text_of
from antiphon.core.errors import UpstreamError
from antiphon.core.items import FunctionCallOutput, Message, Reasoning
from antiphon.core.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.core.tools import FunctionTool
from antiphon.wire.upstream import Upstream

THOUGHTLESS = "does not support thinking"
"""What the server says of a model that cannot think."""


class Ollama(Adapter):
    """A server of Ollama, or its cloud."""

    name = "ollama"
    default_url = "http://127.0.0.1:11434"
    key_env = ("OLLAMA_API_KEY",)
    carries = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens logprobs
        reasoning tools json_object json_schema images""".split()
    )

    def __init__(self, provider: Provider, *, thinks: bool = True) -> None:
        super().__init__(provider)
        # Its makers write its address with the path of its own dialect, or of OpenAI's.
        self.base_url = self.base_url.removesuffix("/api").removesuffix("/v1")
        if not thinks:
            self.carries -= {"reasoning"}

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Ollama's request."""
        request = prompt.request
        body: Fields = {
            "model": prompt.model,
            "messages": messages(prompt),
            "stream": prompt.stream,
            "options": options(request),
            "format": format_of(request),
            "think": think(prompt),
            "tools": [tool(t) for t in request.tools if isinstance(t, FunctionTool)],
            "logprobs": wants_logprobs(request) or None,
            "top_logprobs": request.top_logprobs or None,
            # Left to itself the server cuts a long history and says nothing.
            "truncate": False if request.truncation == "disabled" else None,
        }
        return Upstream(url=f"{self.base_url}/api/chat", body=filled(body))

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return OllamaDecoder(self)

    def instead(self, error: UpstreamError) -> Adapter | None:
        """Return this one without thinking, for a model that refuses to be told to think."""
        is_thoughtless = error.status == 400 and THOUGHTLESS in error.payload.message
        if is_thoughtless and "reasoning" in self.carries:
            return Ollama(self.provider, thinks=False)
        return None

    def listing(self) -> Upstream | None:
        """Describe the request that lists the models on the server."""
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def listed(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return names_in(body, "models", "name")

    def fault(self, status: int, headers: Mapping[str, str], value: object) -> Fault:
        """Find the error in a body."""
        del status, headers
        return fault_of(value)


# --- what is sent ---------------------------------------------------------------------------------


def messages(prompt: Prompt) -> list[Fields]:
    """Write a conversation as messages; raises RequestError."""
    told: list[Fields] = []
    if prompt.request.instructions:
        told.append({"role": "system", "content": prompt.request.instructions})
    names: dict[str, str] = {}
    for speech in tell(prompt.items):
        if speech.role == "assistant":
            names |= {call.call_id: call.name for call in speech.calls}
            told += assistant(speech)
        elif speech.role == "tool":
            told += [result(prompt, output, names) for output in speech.outputs]
        else:
            for item in speech.items:
                if isinstance(item, Message):
                    told.append({"role": speech.role, **content(prompt, item)})
    if not told:  # of a request without messages the server thinks that it shall load the model
        raise prompt.refuse(SILENCE, "input")
    return told


def assistant(speech: Speech) -> list[Fields]:
    """Write what the model said, if it did; its own thinking goes with its calls alone."""
    said = [item.text for item in speech.items if isinstance(item, Message)]
    words = "\n".join(filter(None, said))
    if not (words or speech.calls):
        return []
    message: Fields = {"role": "assistant"}
    if words:
        message["content"] = words
    if calls := speech.calls:
        thoughts = [
            text_of(part)
            for item in speech.items
            if isinstance(item, Reasoning) and item.encrypted_content
            for part in item.content or []
        ]
        if thinking := "".join(thoughts):
            message["thinking"] = thinking
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "function": {"name": call.name, "arguments": arguments_in(call.arguments)},
            }
            for call in calls
        ]
    return [message]


def result(prompt: Prompt, item: FunctionCallOutput, names: Mapping[str, str]) -> Fields:
    """Write what a tool gave back."""
    told: Fields = {"role": "tool", "tool_name": names.get(item.call_id, "")}
    return told | {"tool_call_id": item.call_id, **content(prompt, item)}


def content(prompt: Prompt, item: Message | FunctionCallOutput) -> Fields:
    """Write the words in one string, and the images beside them."""
    images: list[str] = []

    def words(piece: Content) -> list[str]:
        if isinstance(piece, InputImage):
            images.append(media.of_image(piece).data)
        text = text_of(piece)
        return [text] if text else []

    text = "\n".join(pieces(prompt, item, words))
    return {"content": text, **filled({"images": images})}


def tool(tool: FunctionTool) -> Fields:
    """Write a tool."""
    function = filled({"name": tool.name, "description": tool.description})
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def options(request: Request) -> Fields:
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
    return given(named)


def format_of(request: Request) -> object:
    """Write the shape of the answer: a schema, any JSON, or nothing."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema):
            return schema or "json"
        case JsonObjectFormat():
            return "json"
        case _:
            return None


def think(prompt: Prompt) -> bool | str | None:
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
        return nearest(prompt, effort, THREE)
    if effort == "none":
        return False
    nearest(prompt, effort, {effort: "on"})
    return True

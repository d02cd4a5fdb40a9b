"""Ollama's own chat, spoken both ways; what it answers is heard in `_ollama_in.py`.

Dialect notes: arguments are objects, never strings; images are bare base64; there is no choice of
tools; thinking is plain text and goes back in `thinking`, but only to the server it came from, as
the mark in its seal tells.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from antiphon.adapters import media
from antiphon.adapters._ollama_in import REASONS as REASONS
from antiphon.adapters._ollama_in import OllamaDecoder, fault_of
from antiphon.adapters.base import Adapter, Decoder, Fault, Prompt, names_in
from antiphon.adapters.story import Speech, tell
from antiphon.core.content import Content, InputImage, text_of
from antiphon.core.items import FunctionCall, FunctionCallOutput, Message, Reasoning
from antiphon.core.request import LOGPROBS, JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.core.tools import FunctionTool
from antiphon.wire import json
from antiphon.wire.upstream import Upstream

EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
"""The nearest of the three levels, for an effort that is none of them."""


class Ollama(Adapter):
    """A server of Ollama, or its cloud."""

    name = "ollama"
    default_url = "http://127.0.0.1:11434"
    key_env = ("OLLAMA_API_KEY",)
    carries = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens logprobs
        reasoning tools json_object json_schema images""".split()
    )

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Ollama's request."""
        request = prompt.request
        body: dict[str, object] = {
            "model": prompt.model,
            "messages": messages(prompt),
            "stream": prompt.stream,
            "options": options(request),
            "format": format_of(request),
            "think": think(prompt),
        }
        body = {name: value for name, value in body.items() if value not in (None, {})}
        if request.tools:
            body["tools"] = [tool(t) for t in request.tools if isinstance(t, FunctionTool)]
        if request.top_logprobs or LOGPROBS in request.include:
            body["logprobs"] = True
            if request.top_logprobs:
                body["top_logprobs"] = request.top_logprobs
        if request.truncation == "disabled":
            # Left to itself the server cuts a long history and says nothing.
            body["truncate"] = False
        return Upstream(url=f"{self.base_url}/api/chat", body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return OllamaDecoder(self)

    def listing(self) -> Upstream | None:
        """Describe the request that lists the models on the server."""
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def listed(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return names_in(body, "models", "name")

    def fault(self, status: int, headers: Mapping[str, str], value: object) -> Fault:
        """Find the error in a body, and the code that its words stand for."""
        del status, headers
        return fault_of(value)


# --- what is sent ---------------------------------------------------------------------------------


def messages(prompt: Prompt) -> list[dict[str, object]]:
    """Write a conversation as messages."""
    told: list[dict[str, object]] = []
    if prompt.request.instructions:
        told.append({"role": "system", "content": prompt.request.instructions})
    names = {item.call_id: item.name for item in prompt.items if isinstance(item, FunctionCall)}
    for speech in tell(prompt.items):
        if speech.role == "assistant":
            told.append(assistant(speech))
        elif speech.role == "tool":
            told += [result(prompt, output, names) for output in speech.outputs]
        else:
            for item in speech.items:
                if isinstance(item, Message):
                    told.append({"role": speech.role, **content(prompt, item, item.content)})
    return told


def assistant(speech: Speech) -> dict[str, object]:
    """Write what the model said; its own thinking goes with its calls, and only with them."""
    said = [item.text for item in speech.items if isinstance(item, Message)]
    words = "\n".join(filter(None, said))
    message: dict[str, object] = {"role": "assistant"}
    if words or not speech.calls:
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
                "function": {"name": call.name, "arguments": arguments(call.arguments)},
            }
            for call in calls
        ]
    return message


def arguments(text: str) -> dict[str, object]:
    """Return arguments as the object that Ollama wants, whoever wrote them."""
    value: object = text
    if not text.strip():
        return {}
    with suppress(json.JSONError):
        value = json.decode(text.encode(errors="replace"))
    return cast("dict[str, object]", value) if isinstance(value, dict) else {"arguments": value}


def result(prompt: Prompt, item: FunctionCallOutput, names: Mapping[str, str]) -> dict[str, object]:
    """Write what a tool gave back."""
    output = item.output
    told = (
        {"content": output} if isinstance(output, str) else content(prompt, item, output, "output")
    )
    name = names.get(item.call_id, "")
    return {"role": "tool", "tool_name": name, "tool_call_id": item.call_id, **told}


def content(
    prompt: Prompt, item: Message | FunctionCallOutput, pieces: list[Content], name: str = "content"
) -> dict[str, object]:
    """Write the words in one string, and the images beside them."""
    words: list[str] = []
    images: list[str] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, InputImage):
            try:
                images.append(media.of_image(piece).data)
            except ValueError as error:
                place = f"{prompt.place(item)}.{name}[{index}]"
                raise prompt.refuse(f"This image cannot be sent: {error}.", place) from None
        elif text := text_of(piece):
            words.append(text)
    written: dict[str, object] = {"content": "\n".join(words)}
    return written | {"images": images} if images else written


def tool(tool: FunctionTool) -> dict[str, object]:
    """Write a tool."""
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def options(request: Request) -> dict[str, object]:
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
    return {name: value for name, value in named.items() if value is not None}


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
    if effort is None or effort == "none":
        return None if effort is None else False
    graded = prompt.model.rpartition("/")[2].startswith("gpt-oss")
    level = EFFORTS.get(effort, effort) if graded else True
    if level != effort:
        taken = f"'{level}'" if graded else "on"
        message = f"This model does not know the effort '{effort}'; thinking is {taken}."
        prompt.warn("approximated_parameter", message, "reasoning.effort")
    return level

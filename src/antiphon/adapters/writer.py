"""Writer's chat API: OpenAI's dialect with a shorter path and fewer options.

Dialect notes: `POST /chat`; `tool_choice` is an object with a `value`; the details of the prompt
tokens are called `prompt_token_details`; an error in a stream is an `error` event. There are no
strict functions, no `top_logprobs` and no image detail.
"""

from typing import ClassVar

from antiphon.adapters.base import Prompt, Provider
from antiphon.adapters.openai_chat.adapter import ChatCompletions
from antiphon.protocol.struct import JsonObject
from antiphon.protocol.tools import ToolChoice


class Writer(ChatCompletions):
    """Writer, whose models are called Palmyra."""

    name = "writer"
    default_url = "https://api.writer.com/v1"
    key_env = ("WRITER_API_KEY",)
    field_variables: ClassVar = {"base_url": ("WRITER_BASE_URL",)}
    models_list = ("models", "id")
    path: ClassVar[str] = "/chat"
    features = frozenset(
        """temperature top_p stop max_output_tokens logprobs tools tool_choice json_schema
        tools_with_format images image_urls""".split()
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        # A base URL may be given with or without the version.
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def encode_options(self, prompt: Prompt) -> JsonObject:
        """Encode the options without `top_logprobs`: Writer reports only the chosen tokens."""
        body = super().encode_options(prompt)
        if body.pop("top_logprobs", 0):
            message = f"{self.provider.name} has no 'top_logprobs'; they were not requested."
            prompt.warn("unsupported_parameter", message, "top_logprobs")
        return body

    def encode_tool_choice(self, choice: ToolChoice) -> object:
        return {"value": super().encode_tool_choice(choice)}

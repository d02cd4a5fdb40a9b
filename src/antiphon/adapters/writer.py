"""Writer's chat, which is OpenAI's with a shorter path and fewer options.

Dialect notes: `POST /chat`; `tool_choice` is an object with a `value`; the details of the tokens
read are called `prompt_token_details`; an error in a stream is an `error` event. There are no
strict functions, no `top_logprobs` and no detail of images.
"""

from typing import ClassVar

from antiphon.adapters.base import Prompt, Provider, names_in
from antiphon.adapters.chat import Chat
from antiphon.adapters.chat.answer import REASONS
from antiphon.adapters.fields import Fields
from antiphon.core.tools import ToolChoice

__all__ = ["REASONS", "Writer"]


class Writer(Chat):
    """Writer, whose models are called Palmyra."""

    name = "writer"
    default_url = "https://api.writer.com/v1"
    key_env = ("WRITER_API_KEY",)
    path: ClassVar[str] = "/chat"
    hosted = frozenset[str]()
    carries = frozenset(
        """temperature top_p stop max_output_tokens logprobs tools tool_choice json_schema
        tools_with_format images image_urls""".split()
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def options(self, prompt: Prompt) -> Fields:
        """Write the options; of the tokens that were weighed only the chosen one is told."""
        body = super().options(prompt)
        if body.pop("top_logprobs", 0):
            message = f"{self.provider.name} tells no 'top_logprobs'; they were not asked for."
            prompt.warn("unsupported_parameter", message, "top_logprobs")
        return body

    def choice(self, choice: ToolChoice) -> object:
        """Write which tool must be called, in an object."""
        return {"value": super().choice(choice)}

    def listed(self, body: object) -> list[str]:
        """Read the names out of the list of models."""
        return names_in(body, "models", "id")

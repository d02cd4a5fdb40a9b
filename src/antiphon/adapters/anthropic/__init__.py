"""Anthropic Messages, spoken both ways: the conversation is written in `conversation.py`, the
answer heard in `answer.py`.

Dialect notes: `max_tokens` must be said; a temperature exists only in the older of two versions of
the API; the key goes into a header of its own; how to think is decided in `thinking.py`.
"""

import msgspec

from antiphon.adapters.anthropic import tools
from antiphon.adapters.anthropic.answer import REASONS as REASONS
from antiphon.adapters.anthropic.answer import AnthropicDecoder
from antiphon.adapters.anthropic.conversation import Script
from antiphon.adapters.anthropic.models import Claude, known
from antiphon.adapters.anthropic.shapes import Counts
from antiphon.adapters.anthropic.thinking import max_tokens, plan
from antiphon.adapters.base import Adapter, Counting, Decoder, Prompt, Provider
from antiphon.adapters.fields import Fields, fields_of, filled
from antiphon.adapters.options import tier
from antiphon.core.tools import WEB_SEARCH
from antiphon.wire.upstream import Credential, Key, Upstream

VERSION = "2026-10-21"
SAMPLED_VERSION = "2023-06-01"
"""The last version that has a temperature."""

TIERS = {"auto": "auto", "priority": "auto"}
"""What they call a tier; their default is also ours."""

HELD = frozenset({"json_schema", "strict_tools"})
"""What is held to a schema."""

GATEWAY = "ANTHROPIC_AUTH_TOKEN"
"""The variable whose value is shown as gateways want it, a bearer token."""

COUNTED = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control""".split()
)
"""The fields that a count of tokens depends on, and takes."""

SERVED = """server_tool_use web_search_tool_result web_fetch_tool_result code_execution_tool_result
    bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result
    container_upload""".split()
"""The blocks of tools that Anthropic runs, which go back as they came."""


class Anthropic(Adapter):
    """Anthropic's API, or one that speaks like it."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    key_env = ("ANTHROPIC_API_KEY", GATEWAY)
    carries = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key safety_identifier user
        service_tier reasoning tools strict_tools tool_choice parallel_tool_calls json_schema
        tools_with_format images image_urls files file_urls file_ids""".split()
    )
    hosted = WEB_SEARCH
    raw_tools = tools.SLUG
    item_types = frozenset(
        {"openai:web_search_call"} | {f"{tools.SLUG}{block}" for block in SERVED}
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def lacks(self, model: str) -> frozenset[str]:
        """Older models hold neither their answers nor their calls to a schema."""
        return frozenset() if known(model).structured else HELD

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Anthropic's request."""
        claude = known(prompt.model)
        script = Script(prompt, claude)
        thought = plan(prompt, claude, bare=script.bare)
        sampled = sampling(prompt, claude, thinks=thought.thinks)
        asked = tools.demand(prompt, claude)
        body: Fields = {
            "model": prompt.model,
            "max_tokens": max_tokens(prompt, thought),
            "system": "\n\n".join(filter(None, [script.system, asked])),
            "messages": script.messages,
            "tools": tools.tools(prompt),
            "tool_choice": tools.tool_choice(prompt, claude),
            "thinking": thought.thinking,
            "output_config": filled({"effort": thought.effort, "format": tools.format_of(prompt)}),
            "stream": prompt.stream or None,
        }
        body |= sampled | options(prompt)
        return self._upstream("messages", filled(body), SAMPLED_VERSION if sampled else VERSION)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        return AnthropicDecoder(self, prompt)

    def credential(self) -> Credential | None:
        """Show the key in Anthropic's own header, and a token in the one for tokens."""
        return Key() if self.provider.api_key_env == GATEWAY else Key("x-api-key", "")

    def listing(self) -> Upstream | None:
        """Describe the request that lists the models."""
        headers = {"anthropic-version": self.provider.api_version or VERSION}
        return Upstream(method="GET", url=f"{self.base_url}/models?limit=1000", headers=headers)

    def counting(self, prompt: Prompt) -> Counting:
        """Describe how the tokens of a prompt are counted."""
        body = fields_of(self.encode(prompt).body)
        body = {name: body[name] for name in body if name in COUNTED}
        return self._upstream("messages/count_tokens", body, VERSION), counted

    def _upstream(self, path: str, body: Fields, version: str) -> Upstream:
        headers = {"anthropic-version": self.provider.api_version or version}
        return Upstream(url=f"{self.base_url}/{path}", body=body, headers=headers)


def counted(body: object) -> int:
    """Read a count of tokens; raises ValueError."""
    return msgspec.convert(body, Counts).input_tokens or 0


def options(prompt: Prompt) -> Fields:
    """Write what stands for itself."""
    request = prompt.request
    for index, stop in enumerate(request.stop or ()):
        if not stop.strip():
            message = "Anthropic cannot stop at white space alone."
            raise prompt.refuse(message, f"stop[{index}]")
    user = request.safety_identifier or request.user
    return {
        "stop_sequences": request.stop,
        "metadata": {"user_id": user} if user else None,
        "service_tier": tier(prompt, TIERS),
        "cache_control": {"type": "ephemeral"} if request.prompt_cache_key else None,
    }


def sampling(prompt: Prompt, claude: Claude, *, thinks: bool) -> dict[str, float]:
    """Write the temperature or `top_p`; 1 is what holds anyway, and is not worth a version."""
    request = prompt.request
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    given = {name: value for name, value in asked.items() if value is not None and value != 1}
    refused = ""
    if not claude.sampled:
        refused = f"the model '{prompt.model}' does not take it"
    elif thinks:
        refused = "a model that thinks does not take it"
    for name in list(given) if refused else list(given)[1:]:
        del given[name]
        reason = refused or "it stands beside a temperature"
        prompt.warn("unsupported_parameter", f"'{name}' was not sent: {reason}.", name)
    if given.get("temperature", 0) > 1:
        message = "Anthropic knows no temperature above 1; 1 applies."
        prompt.warn("unsupported_parameter", message, "temperature")
        del given["temperature"]
    return given

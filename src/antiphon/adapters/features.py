"""The features of a request, and what happens to those that a provider does not support.

An adapter lists the features of its dialect (`Adapter.features`); the configuration may name those
that a model lacks (`Capabilities.lacks`). An unsupported feature is never dropped in silence. If
the request would mean something else without it, the request is rejected with the name of the
param; otherwise the feature is removed and the response has a warning in `antiphon:warnings`.

`FeatureFilter` does this before `Adapter.encode`, which may therefore encode all that it finds.
"""

from collections.abc import Callable, Mapping
from itertools import filterfalse

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Prompt
from antiphon.adapters.media import MEDIA_CONTENT, read_audio
from antiphon.protocol import tools
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    CUSTOM_TOOL_CALL_OUTPUT,
    Content,
    ExtensionContent,
    ExtensionItem,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputVideo,
    Item,
    Message,
)
from antiphon.protocol.request import INCLUDE_LOGPROBS, JsonSchemaFormat, Request, TextConfig
from antiphon.protocol.struct import InvalidValueError, join_path, to_builtins


class Feature(Struct, frozen=True):
    """An optional field of a request: how to see that it is used, and how to remove it."""

    param: str
    is_requested: Callable[[Request], bool]
    remove: Callable[[Request], Request]
    changes_meaning: bool = False
    """Whether a request without it means something else, so that it is rejected instead."""


def _field_feature(name: str) -> Feature:
    return Feature(
        name,
        lambda request: getattr(request, name) is not None,
        lambda request: replace(request, **{name: None}),
        changes_meaning=name in ("stop", "max_output_tokens"),
    )


def wants_logprobs(request: Request) -> bool:
    """Return whether the request asks for log probabilities."""
    return bool(request.top_logprobs) or INCLUDE_LOGPROBS in request.include


def _remove_logprobs(request: Request) -> Request:
    include = [name for name in request.include if name != INCLUDE_LOGPROBS]
    return replace(request, top_logprobs=None, include=include)


OPTION_FIELDS = """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens
    max_tool_calls prompt_cache_key safety_identifier user""".split()
"""The features that are one field each, which is None if the request does not use them."""

FEATURES: dict[str, Feature] = {name: _field_feature(name) for name in OPTION_FIELDS} | {
    "logprobs": Feature("top_logprobs", wants_logprobs, _remove_logprobs),
    "service_tier": Feature(
        "service_tier",
        # These two are what a provider without tiers does.
        lambda request: request.service_tier not in ("auto", "default"),
        lambda request: replace(request, service_tier="default"),
    ),
    "verbosity": Feature(
        "text.verbosity",
        lambda request: bool(request.text.verbosity),
        lambda request: replace(request, text=TextConfig(format=request.text.format)),
    ),
    "reasoning": Feature(
        "reasoning",
        lambda request: bool(
            request.reasoning and (request.reasoning.effort not in (None, "none") or request.reasoning.summary)
        ),
        lambda request: replace(request, reasoning=None),
    ),
}

TOOL_FEATURES = frozenset({"tools", "strict_tools", "tool_choice", "parallel_tool_calls", "allowed_tools"})
FORMAT_FEATURES = frozenset({"json_object", "json_schema", "tools_with_format"})
CONTENT_ADVICE = {
    "images": ("images", ""),
    "image_urls": ("an image by its address", "Send it as a data URL."),
    "files": ("files", ""),
    "file_urls": ("a file by its address", "Send it as a data URL in file_data."),
    "file_ids": ("a file by its id", "Send it as a data URL."),
    "videos": ("videos", ""),
    "audio": ("audio", ""),
}
"""What an error calls the content that a feature stands for, and what it advises instead."""

CONTENT_FEATURES = CONTENT_ADVICE.keys() | {"image_detail"}
ALL_FEATURES = FEATURES.keys() | TOOL_FEATURES | FORMAT_FEATURES | CONTENT_FEATURES
"""Every name that `Adapter.features` and the key `lacks` of the configuration may contain."""


def remove_unsupported(adapter: Adapter, prompt: Prompt) -> Prompt:
    """Return the prompt without what the adapter does not support; raises RequestError."""
    return FeatureFilter(adapter, prompt).filter()


class FeatureFilter:
    """Removes from one prompt what one adapter does not support."""

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        self._adapter = adapter
        self._provider_name = adapter.provider.name
        self._prompt = prompt
        self._available = adapter.available_features(prompt)
        self._dropped_call_ids: list[object] = []
        """The ids of custom calls that were dropped. Their outputs are dropped too."""

    def filter(self) -> Prompt:
        request = self._filter_tools(self._filter_options(self._prompt.request))
        wanted = format_feature(request)
        # A format that the dialect lacks can be produced by a tool call (`json_via_tool.py`).
        if wanted and self._available.isdisjoint({wanted, "tools"}):
            self._raise_unsupported(f"'{request.text.format.type}'", "text.format", "Ask for text.")
        items = [kept for item in self._prompt.items if (kept := self._filter_item(item))]
        return replace(self._prompt, request=request, items=items)

    def _raise_unsupported(self, what: str, param: str, advice: str) -> None:
        problem = f"{self._provider_name} does not support {what} for the model '{self._prompt.model}'."
        raise self._prompt.unsupported_error(f"{problem} {advice}", param)

    def _filter_options(self, request: Request) -> Request:
        for name in filterfalse(self._available.__contains__, FEATURES):
            feature = FEATURES[name]
            if feature.is_requested(request):
                self._drop_feature(feature)
                request = feature.remove(request)
        if "reasoning" not in self._available and request.reasoning:
            if "reasoning" in self._adapter.rejected_features and request.reasoning.effort:
                # The server rejected the field, but its model may reason all the same.
                self._drop_feature(FEATURES["reasoning"])
            # An effort of `none` needs no warning: a model without reasoning does just that.
            request = replace(request, reasoning=None)
        return request

    def _drop_feature(self, feature: Feature) -> None:
        if feature.changes_meaning:
            self._raise_unsupported(f"'{feature.param}'", feature.param, "Leave it out.")
        message = f"{self._provider_name} has no '{feature.param}' for this model; it was not sent."
        self._prompt.warn("unsupported_parameter", message, feature.param)

    def _filter_tools(self, request: Request) -> Request:
        choice = request.tool_choice
        if not request.tools and choice == "auto":
            return request
        if isinstance(choice, tools.ExtensionToolChoice) and not self._adapter.supports_tool(choice.type):
            self._raise_unsupported(f"the tool '{choice.type}'", "tool_choice", "Use a function, or 'auto'.")
        offered = [tool for index, tool in enumerate(request.tools) if self._check_tool(tool, index)]
        if isinstance(choice, tools.AllowedTools) and self._available >= {"tool_choice", "allowed_tools"}:
            choice = self._filter_allowed_tools(choice)
        elif isinstance(choice, tools.AllowedTools):
            # A tool that is not offered cannot be called, so the choice need not be sent.
            offered = [tool for tool in offered if tools.may_call(tool, choice)]
            choice = choice.mode
        # Without any supported tool the model could not satisfy the choice.
        if tools.must_call(choice) and not offered:
            self._raise_unsupported("any of these tools", "tool_choice", "Use 'auto'.")
        if "tool_choice" not in self._available:
            if tools.must_call(choice):
                self._raise_unsupported("a required tool call", "tool_choice", "Use 'auto'.")
            # Without tools the model cannot call any, which is what the client wants.
            if choice == "none":
                offered, choice = [], "auto"
        return replace(request, tools=[self._drop_strict(tool) for tool in offered], tool_choice=choice)

    def _filter_allowed_tools(self, choice: tools.AllowedTools) -> tools.ToolChoice:
        supports = self._adapter.supports_tool
        known = [tool for tool in choice.tools if isinstance(tool, tools.FunctionToolChoice) or supports(tool.type)]
        if known:
            return choice if len(known) == len(choice.tools) else replace(choice, tools=known)
        if tools.must_call(choice):
            self._raise_unsupported("any of these tools", "tool_choice", "Use 'auto'.")
        return "none"

    def _check_tool(self, tool: tools.Tool, index: int) -> bool:
        if isinstance(tool, tools.ExtensionTool):
            if tool.type == tools.CUSTOM_TOOL:  # an invalid one is rejected even if the adapter has none
                try:
                    tools.decode_custom_tool(tool)
                except InvalidValueError as error:
                    raise nested_shape_error(error, f"tools[{index}]") from None
            known, name = self._adapter.supports_tool(tool.type), tool.type
        else:
            known, name = "tools" in self._available, tool.name
        if not known:
            message = f"{self._provider_name} has no tool '{name}' for this model; it was left out."
            self._prompt.warn("unsupported_tool", message, f"tools[{index}]")
        return known

    def _drop_strict(self, tool: tools.Tool) -> tools.Tool:
        if isinstance(tool, tools.ExtensionTool) or not tool.strict or "strict_tools" in self._available:
            return tool
        index = self._prompt.request.tools.index(tool)
        message = f"{self._provider_name} has no strict tools for this model; it was not requested."
        self._prompt.warn("unsupported_parameter", message, f"tools[{index}].strict")
        return replace(tool, strict=None)

    def _filter_item(self, item: Item) -> Item | None:
        match item:
            case Message(content=content):
                kept = self._filter_content(item, "content", content)
                return item if kept is content else replace(item, content=kept)
            case FunctionCallOutput(output=list() as output):
                kept = self._filter_content(item, "output", output)
                return item if kept is output else replace(item, output=kept)
            case ExtensionItem():
                return self._filter_extension(item)
            case _:
                return item

    def _filter_extension(self, item: ExtensionItem) -> Item | None:
        output: str | list[Content] = ""
        try:
            if item.type == CUSTOM_TOOL_CALL:
                tools.decode_custom_call(item)
            elif item.type == CUSTOM_TOOL_CALL_OUTPUT:
                output = tools.decode_custom_output(item).output
        except InvalidValueError as error:
            path = self._prompt.item_path(item)
            if path != "input":
                raise nested_shape_error(error, path) from None
            self._dropped_call_ids.append(item.get("call_id"))
            # An item of the stored history cannot be corrected by the client.
            return self._drop_item(item)
        is_orphan = item.get("call_id") in self._dropped_call_ids
        if is_orphan or not self._adapter.supports_item(item.type):
            return self._drop_item(item)
        if isinstance(output, str):
            return item
        kept = self._filter_content(item, "output", output)
        if kept is output:
            return item
        return replace(item, extra={**(item.extra or {}), "output": to_builtins(kept)})

    def _drop_item(self, item: ExtensionItem) -> None:
        message = f"{self._provider_name} cannot read an item of type '{item.type}'; it was left out."
        self._prompt.warn("unsupported_item", message, self._prompt.item_path(item))

    def _filter_content(self, item: Item, name: str, content: list[Content]) -> list[Content]:
        if MEDIA_CONTENT.isdisjoint(map(type, content)):  # most messages hold only text
            return content
        path = f"{self._prompt.item_path(item)}.{name}"
        kept = [self._filter_part(part, f"{path}[{index}]") for index, part in enumerate(content)]
        return content if kept == content else kept

    def _filter_part(self, part: Content, path: str) -> Content:
        feature = content_feature(part)
        # Content beyond the specification has its type as its feature.
        if feature and feature not in self._available and not self._adapter.supports_item(feature):
            name, advice = CONTENT_ADVICE.get(feature, (f"'{part.type}'", ""))
            self._raise_unsupported(name, path, advice)
        if isinstance(part, InputImage) and part.detail != "auto" and "image_detail" not in self._available:
            message = f"Images have no 'detail' at {self._provider_name}; it was not sent."
            self._prompt.warn("unsupported_parameter", message, f"{path}.detail")
            return replace(part, detail="auto")
        if isinstance(part, ExtensionContent) and feature == "audio":
            try:
                read_audio(part)
            except ValueError as error:
                message = f"This '{part.type}' cannot be sent: {error}."
                raise self._prompt.unsupported_error(message, path) from None
        return part


def nested_shape_error(error: InvalidValueError, path: str) -> RequestError:
    """Build the error for an invalid field inside the value at a path."""
    return RequestError.from_invalid_value(InvalidValueError(join_path(path, error.path), error.reason))


def format_feature(request: Request) -> str | None:
    """Return the feature that the request's text format needs; None for plain text.

    A `json_schema` without a schema, or with an empty one, is the same as `json_object`.
    """
    format = request.text.format
    if isinstance(format, JsonSchemaFormat) and format.schema:
        return "json_schema"
    return None if format.type == "text" else "json_object"


def content_feature(part: Content) -> str | None:
    """Return the feature that a content part needs; None for text."""
    match part:
        case InputImage():
            return _media_feature(part.image_url, "images", "image_urls")
        case InputFile():
            return "files" if part.file_data else _media_feature(part.file_url or None, "files", "file_urls")
        case InputVideo():
            return "videos"
        case ExtensionContent():
            return "audio" if part.type == "openai:input_audio" else part.type
        case _:
            return None


def _media_feature(url: str | None, inline: str, linked: str) -> str:
    if not url:
        return "file_ids"
    return inline if url[:5].lower() == "data:" else linked


EFFORTS_WITHOUT_MINIMAL = {"minimal": "low"}
"""Maps each effort that a provider lacks to its nearest one; here `minimal` is lacking."""

EFFORTS_MINIMAL_TO_HIGH = {"none": "minimal", "xhigh": "high", "max": "high"}
EFFORTS_LOW_TO_HIGH = EFFORTS_MINIMAL_TO_HIGH | {"none": "low", "minimal": "low"}


def nearest_effort(prompt: Prompt, effort: str, levels: Mapping[str, str]) -> str:
    """Return the nearest supported effort, with a warning if it is not the requested one."""
    level = levels.get(effort, effort)
    if level != effort:
        message = f"This model has no effort '{effort}'; '{level}' was sent."
        prompt.warn("approximated_parameter", message, "reasoning.effort")
    return level


def service_tier_name(prompt: Prompt, names: Mapping[str, str]) -> str | None:
    """Return the provider's name for the requested service tier; None if it has none."""
    tier = prompt.request.service_tier
    if tier not in names and tier not in ("auto", "default"):
        message = f"There is no tier '{tier}' for this model; it was not sent."
        prompt.warn("unsupported_parameter", message, "service_tier")
    return names.get(tier)

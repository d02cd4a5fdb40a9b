"""The one rule for what a provider cannot carry: never in silence.

Every feature of a request has a row here. A dialect lists the features it has (`Adapter.carries`),
a model those it lacks all the same (`Capabilities.lacks`). What is asked for and cannot be carried
is refused, naming the param, when leaving it out would change the meaning of the request; otherwise
it is left out and the response says so in `antiphon:warnings`.

What an adapter's `encode` is given has been through here: it may write all it finds.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Prompt
from antiphon.adapters.media import of_sound
from antiphon.core import custom
from antiphon.core.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputVideo,
)
from antiphon.core.errors import RequestError
from antiphon.core.items import (
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ExtensionItem,
    FunctionCallOutput,
    Item,
    Message,
)
from antiphon.core.request import (
    LOGPROBS,
    JsonObjectFormat,
    JsonSchemaFormat,
    Request,
    TextConfig,
)
from antiphon.core.tools import (
    CUSTOM,
    AllowedTools,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionToolChoice,
    Tool,
    ToolChoice,
    may_call,
    must_call,
)
from antiphon.core.value import ShapeError, join, plain


class Feature(Struct, frozen=True):
    """Something a request may ask for, beside its content and its tools."""

    param: str
    asked: Callable[[Request], bool]
    without: Callable[[Request], Request]
    grave: bool = False
    """Whether a request without it would mean something else."""


def _field(name: str, *, grave: bool = False) -> Feature:
    return Feature(
        name,
        lambda request: getattr(request, name) is not None,
        lambda request: replace(request, **{name: None}),
        grave,
    )


def _without_logprobs(request: Request) -> Request:
    include = [name for name in request.include if name != LOGPROBS]
    return replace(request, top_logprobs=None, include=include)


FEATURES: dict[str, Feature] = {
    "temperature": _field("temperature"),
    "top_p": _field("top_p"),
    "presence_penalty": _field("presence_penalty"),
    "frequency_penalty": _field("frequency_penalty"),
    "seed": _field("seed"),
    "stop": _field("stop", grave=True),
    "max_output_tokens": _field("max_output_tokens", grave=True),
    "max_tool_calls": _field("max_tool_calls"),
    "prompt_cache_key": _field("prompt_cache_key"),
    "safety_identifier": _field("safety_identifier"),
    "user": _field("user"),
    "logprobs": Feature(
        "top_logprobs",
        lambda request: bool(request.top_logprobs) or LOGPROBS in request.include,
        _without_logprobs,
    ),
    "service_tier": Feature(
        "service_tier",
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
            request.reasoning
            and (request.reasoning.effort not in (None, "none") or request.reasoning.summary)
        ),
        lambda request: replace(request, reasoning=None),
    ),
}

TOOL_FEATURES = frozenset(
    {"tools", "strict_tools", "tool_choice", "parallel_tool_calls", "allowed_tools"}
)
FORMAT_FEATURES = frozenset({"json_object", "json_schema", "tools_with_format"})
CONTENT_FEATURES = frozenset(
    {"images", "image_urls", "image_detail", "files", "file_urls", "file_ids", "videos", "audio"}
)
ALL = FEATURES.keys() | TOOL_FEATURES | FORMAT_FEATURES | CONTENT_FEATURES
"""Every name that `carries` and `lacks` may hold."""


def carried(adapter: Adapter, prompt: Prompt) -> Prompt:
    """Return what an adapter can carry of a prompt; raises RequestError for what must be."""
    return Carrier(adapter, prompt).carry()


class Carrier:
    """Takes out of one prompt what one dialect cannot carry."""

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        self._adapter = adapter
        self._who = adapter.provider.name
        self._prompt = prompt
        self._has = adapter.has(prompt)
        self._odd: list[object] = []
        """The ids of custom calls that are left out; their outputs are too."""

    def carry(self) -> Prompt:
        """Return what can be carried."""
        request = self._options(self._prompt.request)
        request = self._tools(request)
        self._format(request)
        items = [carried for item in self._prompt.items if (carried := self._item(item))]
        return replace(self._prompt, request=request, items=items)

    def _refuse(self, what: str, param: str, advice: str) -> None:
        raise self._prompt.refuse(
            f"{self._who} cannot carry {what} for the model '{self._prompt.model}'. {advice}", param
        )

    def _options(self, request: Request) -> Request:
        for name, feature in FEATURES.items():
            if name not in self._has and feature.asked(request):
                self._leave_out(feature)
                request = feature.without(request)
        if "reasoning" not in self._has and request.reasoning:
            if "reasoning" in self._adapter.lacking and request.reasoning.effort:
                self._leave_out(FEATURES["reasoning"])  # it may well think, whatever it refuses
            request = replace(request, reasoning=None)  # not to think is what others do anyway
        return request

    def _leave_out(self, feature: Feature) -> None:
        if feature.grave:
            self._refuse(f"'{feature.param}'", feature.param, "Leave it out.")
        self._prompt.warn(
            "unsupported_parameter",
            f"{self._who} has no '{feature.param}' for this model; it was not sent.",
            feature.param,
        )

    # --- tools ---

    def _tools(self, request: Request) -> Request:
        choice = request.tool_choice
        if not request.tools and choice == "auto":
            return request
        if isinstance(choice, ExtensionToolChoice) and not self._adapter.hosts(choice.type):
            self._refuse(f"the tool '{choice.type}'", "tool_choice", "Use a function, or 'auto'.")
        offered = [tool for index, tool in enumerate(request.tools) if self._tool(tool, index)]
        if isinstance(choice, AllowedTools) and self._has >= {"tool_choice", "allowed_tools"}:
            choice = self._narrowed(choice)
        elif isinstance(choice, AllowedTools):
            # Those that may not be called are not even shown: no model can call them then.
            offered = [tool for tool in offered if may_call(tool, choice)]
            choice = choice.mode
        request = replace(request, tools=offered, tool_choice=choice)
        if must_call(choice) and not request.tools:
            self._refuse("any of these tools", "tool_choice", "Use 'auto'.")
        if "tool_choice" not in self._has:
            if must_call(choice):
                self._refuse("a call that is demanded", "tool_choice", "Use 'auto'.")
            if choice == "none":
                return replace(request, tools=[], tool_choice="auto")
        return replace(request, tools=[self._loosened(tool) for tool in request.tools])

    def _narrowed(self, choice: AllowedTools) -> ToolChoice:
        """Return a choice without the tools that this dialect does not have."""
        known = [
            tool
            for tool in choice.tools
            if isinstance(tool, FunctionToolChoice) or self._adapter.hosts(tool.type)
        ]
        if known:
            return choice if len(known) == len(choice.tools) else replace(choice, tools=known)
        if must_call(choice):
            self._refuse("any of these tools", "tool_choice", "Use 'auto'.")
        return "none"

    def _tool(self, tool: Tool, index: int) -> bool:
        if isinstance(tool, ExtensionTool):
            self._custom_tool(tool, index)
            known, name = self._adapter.hosts(tool.type), tool.type
        else:
            known, name = "tools" in self._has, tool.name
        if not known:
            message = f"{self._who} has no tool '{name}' for this model; it was left out."
            self._prompt.warn("unsupported_tool", message, f"tools[{index}]")
        return known

    def _custom_tool(self, tool: ExtensionTool, index: int) -> None:
        """Check a custom tool as a function, whoever has such tools."""
        if tool.type != CUSTOM:
            return
        try:
            custom.tool_of(tool)
        except ShapeError as error:
            raise misshapen(error, f"tools[{index}]") from None

    def _loosened(self, tool: Tool) -> Tool:
        """Return a tool that demands no more strictness than there is."""
        if isinstance(tool, ExtensionTool) or not tool.strict or "strict_tools" in self._has:
            return tool
        index = self._prompt.request.tools.index(tool)
        message = f"{self._who} has no strict tools for this model; it was not demanded."
        self._prompt.warn("unsupported_parameter", message, f"tools[{index}].strict")
        return replace(tool, strict=None)

    # --- the shape of the answer ---

    def _format(self, request: Request) -> None:
        """Refuse JSON that neither the dialect nor a tool can bring about."""
        wanted = feature_of(request)
        if wanted and wanted not in self._has and "tools" not in self._has:
            self._refuse(f"'{request.text.format.type}'", "text.format", "Ask for text.")

    # --- content ---

    def _item(self, item: Item) -> Item | None:
        match item:
            case Message(content=content):
                carried = self._content(item, "content", content)
                return item if carried is content else replace(item, content=carried)
            case FunctionCallOutput(output=list() as output):
                carried = self._content(item, "output", output)
                return item if carried is output else replace(item, output=carried)
            case ExtensionItem():
                return self._extension(item)
            case _:
                return item

    def _extension(self, item: ExtensionItem) -> Item | None:
        try:
            output = self._custom(item)
        except ShapeError as error:
            place = self._prompt.place(item)
            if place != "input":
                raise misshapen(error, place) from None
            self._odd.append(item.get("call_id"))
            return self._unread(item)  # it was said long ago, and cannot be said better now
        if not self._adapter.reads(item.type) or item.get("call_id") in self._odd:
            return self._unread(item)
        carried = output if isinstance(output, str) else self._content(item, "output", output)
        if carried is output:
            return item
        return replace(item, extra={**(item.extra or {}), "output": plain(carried)})

    def _unread(self, item: ExtensionItem) -> None:
        message = f"{self._who} cannot read an item of type '{item.type}'; it was left out."
        self._prompt.warn("unsupported_item", message, self._prompt.place(item))

    def _custom(self, item: ExtensionItem) -> str | list[Content]:
        """Check a custom call and its output as a function's; return what the output holds."""
        if item.type == CUSTOM_CALL:
            custom.call_of(item)
        return custom.output_of(item).output if item.type == CUSTOM_OUTPUT else ""

    def _content(self, item: Item, name: str, content: list[Content]) -> list[Content]:
        if DEMANDING.isdisjoint(map(type, content)):  # so it is in most messages
            return content
        place = f"{self._prompt.place(item)}.{name}"
        carried = [self._part(part, f"{place}[{index}]") for index, part in enumerate(content)]
        return content if carried == content else carried

    def _part(self, part: Content, place: str) -> Content:
        feature = needs(part)
        if feature and feature not in self._has and not self._adapter.reads(feature):
            self._refuse(WORDS.get(feature, f"'{part.type}'"), place, ADVICE.get(feature, ""))
        match part:
            case InputImage() if part.detail != "auto" and "image_detail" not in self._has:
                message = f"Images have no 'detail' at {self._who}; it was not sent."
                self._prompt.warn("unsupported_parameter", message, f"{place}.detail")
                return replace(part, detail="auto")
            case ExtensionContent() if feature == "audio":
                self._sound(part, place)
            case _:
                pass
        return part

    def _sound(self, part: ExtensionContent, place: str) -> None:
        try:
            of_sound(part)
        except ValueError as error:
            message = f"This '{part.type}' cannot be sent: {error}."
            raise self._prompt.refuse(message, place) from None


def misshapen(error: ShapeError, place: str) -> RequestError:
    """Blame a field of what stands in a place."""
    return RequestError.of_shape(ShapeError(join(place, error.path), error.reason))


WORDS = {
    "images": "images",
    "image_urls": "an image by its address",
    "files": "files",
    "file_urls": "a file by its address",
    "file_ids": "a file by its id",
    "videos": "videos",
    "audio": "audio",
}
ADVICE = {
    "image_urls": "Send it as a data URL.",
    "file_urls": "Send it as a data URL in file_data.",
    "file_ids": "Send it as a data URL.",
}


def feature_of(request: Request) -> str | None:
    """Return the feature that a request's format needs, if it is not plain text.

    A format of JSON whose schema is missing or empty is JSON of any shape.
    """
    match request.text.format:
        case JsonSchemaFormat(schema=schema) if schema:
            return "json_schema"
        case JsonSchemaFormat() | JsonObjectFormat():
            return "json_object"
        case _:
            return None


DEMANDING = frozenset({InputImage, InputFile, InputVideo, ExtensionContent})
"""The content that not everybody can read."""


def needs(part: Content) -> str | None:
    """Return the feature that a piece of content needs, if it is not text."""
    match part:
        case InputImage():
            return _needs_media(part.image_url, "images", "image_urls")
        case InputFile():
            url = part.file_url or None
            return "files" if part.file_data else _needs_media(url, "files", "file_urls")
        case InputVideo():
            return "videos"
        case ExtensionContent():
            return "audio" if part.type == "openai:input_audio" else part.type
        case _:
            return None


def _needs_media(url: str | None, inline: str, linked: str) -> str:
    if not url:
        return "file_ids"
    return inline if url[:5].lower() == "data:" else linked

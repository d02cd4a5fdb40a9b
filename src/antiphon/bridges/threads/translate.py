"""Thread events to parts. Each event shows a whole item, and what was not sent before becomes parts."""

from collections.abc import Iterator

from antiphon.bridges.threads.config import OpenResponsesConfig
from antiphon.bridges.threads.events import (
    AgentMessageItem,
    ExecUsage,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    NoticeEvent,
    ReasoningItem,
    ThreadCompleted,
    ThreadError,
    ThreadEvent,
    ThreadItem,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    from_exec_usage,
)
from antiphon.bridges.threads.items import (
    SLUG,
    OutputItem,
    convert_extension,
    empty_message,
    extension_data,
    extension_name,
)
from antiphon.bridges.threads.shown_text import ShownText
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.parts import Call, ItemState, Part
from antiphon.protocol.response import ResponseUsage
from antiphon.protocol.surrogates import repair_value
from antiphon.wire import json

ARGUMENTS_REPLACED = parts.Warn(
    "arguments_replaced", "The arguments of a call that had been sent were replaced; the call keeps the first ones."
)

UNNAMED_TOOL = "unnamed_tool"
"""The name of a tool without one; a function call has to have a name."""


class ThreadTranslator:
    """Translates the events of one thread into parts."""

    def __init__(self, config: OpenResponsesConfig) -> None:
        self._config = config
        self._open_texts: dict[str, ShownText] = {}
        self._sent_arguments: dict[str, object] = {}
        """The arguments of each open call; None if they were not sent yet."""
        self._completed: set[str] = set()
        """The keys of the turn's completed items; late events about them are ignored."""
        self._call_ids: dict[str, str] = {}
        """The call_id of each tool invocation of the turn, by the id of its item."""
        self._used_call_ids: set[str] = set()
        self._usage = ExecUsage()
        """The usage of all turns so far."""

    def translate(self, event: ThreadEvent) -> Iterator[Part]:
        """Yield the parts of an event; a Finish or a Failure is the end of a turn."""
        match event:
            case TurnStarted():
                # Another turn may number its items from the start again.
                self._completed.clear()
                self._call_ids.clear()
            case ItemStarted(item=item) | ItemUpdated(item=item):
                yield from self._show_item(item, complete=False)
            case ItemCompleted(item=item):
                yield from self._show_item(item, complete=True)
            case TurnCompleted(usage=usage):
                yield self._add_usage(usage)
                yield parts.Finish("stop")
            case TurnFailed(message=message, usage=usage):
                if usage:
                    yield self._add_usage(usage)
                yield failure_part(message, "model_error")
            case ThreadError(message=message):
                yield failure_part(message, "server_error")
            case _ if isinstance(event, NoticeEvent) and self._config.include_extensions:
                yield parts.Extension(f"{SLUG}:{extension_name(event.type)}", {"data": extension_data(event)})
            case _:
                pass

    def _show_item(self, item: ThreadItem, *, complete: bool) -> Iterator[Part]:
        # An id that comes back with another type is another item.
        key = f"{item.type} {item.id}"
        if key in self._completed or not self._config.includes(item):
            return
        match item:
            case AgentMessageItem() | ReasoningItem():
                yield from self._show_text(item, key, complete=complete)
            case ToolInvocationItem(tool_call_id=tool_call_id):
                call_id = self._resolve_call_id(item.id, tool_call_id)
                yield from self._show_call(item, key, call_id, complete=complete)
            case McpToolCallItem(result=result):
                call_id = self._resolve_call_id(item.id)
                yield from self._show_call(item, key, call_id, complete=complete)
                if complete and result is not None:
                    output = OutputItem.function_call_output(item.id, call_id, encode_json(result))
                    yield ItemState(output, f"{key} output", complete=True)
            case ToolOutputItem():
                call_id = self._resolve_call_id(item.call_id, item.tool_call_id)
                yield ItemState(OutputItem.function_call_output(item.id, call_id, item.text), key, complete)
            case _:
                yield ItemState(convert_extension(item, complete=complete), key, complete)
        if complete:
            self._completed.add(key)

    def _show_text(self, item: AgentMessageItem | ReasoningItem, key: str, *, complete: bool) -> Iterator[Part]:
        shown = self._open_texts.get(key)
        if shown is None:
            is_message = isinstance(item, AgentMessageItem)
            shown = self._open_texts[key] = ShownText(empty_message() if is_message else OutputItem.reasoning(""), key)
        yield from shown.show(item.text)
        if complete:
            del self._open_texts[key]
            yield shown.end()

    def _show_call(
        self, item: ToolInvocationItem | McpToolCallItem, key: str, call_id: str, *, complete: bool
    ) -> Iterator[Part]:
        if key not in self._sent_arguments:
            self._sent_arguments[key] = None
            yield Call(key, item.tool_name or UNNAMED_TOOL, call_id=call_id)
        sent = self._sent_arguments[key]
        # An empty object may only say that the model is still writing the arguments.
        if item.arguments not in (None, {}, sent):
            if sent is None:
                self._sent_arguments[key] = item.arguments
                yield Call(key, arguments=encode_json(item.arguments))
            else:
                yield ARGUMENTS_REPLACED
        if complete:
            del self._sent_arguments[key]
            yield Call(key, complete=True)

    def _add_usage(self, usage: ExecUsage) -> Part:
        self._usage += usage
        return usage_part(from_exec_usage(self._usage))

    def _resolve_call_id(self, item_id: str, tool_call_id: str | None = None) -> str:
        """Return the call_id of an invocation: the model's own, or the item's id if there is none or it is taken."""
        call_id = self._call_ids.get(item_id)
        if call_id is None:
            call_id = tool_call_id if tool_call_id and tool_call_id not in self._used_call_ids else item_id
            self._call_ids[item_id] = call_id
            self._used_call_ids.add(call_id)
        return call_id


def encode_json(value: object) -> str:
    """Return a value as JSON text; a string is taken for one already."""
    return value if isinstance(value, str) else json.encode(repair_value(value)).decode()


def usage_part(usage: ResponseUsage) -> Part:
    """Return the part that carries a usage."""
    cached, reasoning = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
    return parts.Usage(usage.input_tokens, usage.output_tokens, cached, reasoning)


def thread_outcome(event: ThreadCompleted) -> parts.Finish | parts.Failure:
    """Return the end of a response whose thread ended without the end of its turn."""
    match event.subtype:
        case "success":
            return parts.Finish("stop")
        case "cancelled":
            return parts.Finish("cancelled")
        case subtype:
            message = event.result or f"The thread ended with {subtype}."
            error = ErrorPayload(message=message, type="model_error", code=event.outcome_code or subtype)
            return parts.Failure(error)


def failure_part(message: str, type: str) -> parts.Failure:
    """Return the failure of a turn."""
    return parts.Failure(ErrorPayload(message=message or "The turn failed.", type=type))

"""What runs of graphs and of chains share: the turn, the client's tools, tokens, errors, values as text."""

import asyncio
import json
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.config import get_config
from langgraph.runtime import RunControl
from msgspec import Struct

from antiphon.agents.turn import Turn
from antiphon.bridges.conversation import client_functions, model_error, unsupported_warnings
from antiphon.protocol import parts
from antiphon.protocol.tools import FunctionTool

TURN_KEY = "antiphon_turn"
"""Where a node finds the turn: `config["configurable"]`."""

FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""The names that LangChain's models have for why they stopped."""

FINISH_REASONS: Mapping[str, parts.Reason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
}


class ServedTurn(Struct):
    """A turn, as the nodes of its graph see it."""

    turn: Turn
    is_read: bool = False
    """Whether a node has read it, so that the graph decides itself what of the request it obeys."""
    offered: frozenset[str] = frozenset()
    """The names of the client's functions that a model has been offered."""

    def warnings(self, supported: Collection[str], advice: str) -> Iterator[parts.Warn]:
        """Yield a warning for each field that was not obeyed; `advice` says why tools were not offered."""
        if not self.is_read:
            yield from unsupported_warnings(self.turn, supported)
        if self.turn.functions and not self.offered:
            yield parts.Warn("unsupported_tool", f"The client's tools were not offered to the model: {advice}", "tools")


def current_turn() -> Turn:
    """Return the turn that is being answered, for a node or a tool; raises RuntimeError anywhere else."""
    served = find_served_turn()
    if served is None:
        raise RuntimeError("there is no turn: Antiphon has not called this code.")
    served.is_read = True
    return served.turn


def client_tools(own_tools: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the functions that the client offers in this turn, for `bind_tools`; none outside of Antiphon.

    The turn ends after a round in which the model calls one of them. `own_tools` are the names of the agent's own
    tools: raises RequestError if the client offers one of the same name.
    """
    served = find_served_turn()
    if served is None:
        return []
    functions = client_functions(served.turn, own_tools)
    served.offered = frozenset(function.name for function in functions)
    return [encode_function(function) for function in functions]


def find_served_turn() -> ServedTurn | None:
    """Return the turn of the node that is running; None outside of Antiphon."""
    try:
        config = get_config()
    except RuntimeError:  # outside of a runnable
        return None
    return config.get("configurable", {}).get(TURN_KEY)


def encode_function(function: FunctionTool) -> dict[str, Any]:
    """Return a function as every chat model of LangChain takes it."""
    fields: dict[str, Any] = {
        "name": function.name,
        "description": function.description or "",
        "parameters": function.parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": fields | ({"strict": True} if function.strict else {})}


class RunMonitor(BaseCallbackHandler):
    """Counts the tokens of all models of one run, and stops a graph when a call waits for the client."""

    # In the event loop and before the node goes on: otherwise the next node could start too early.
    run_inline = True

    def __init__(self, served: ServedTurn, control: RunControl | None = None) -> None:
        self._served = served
        self._control = control
        self._model_error: BaseException | None = None
        self.usages: list[UsageMetadata] = []
        self.model_calls = 0
        self.finish: parts.Finish | None = None
        """Why the last model was cut short, if it was."""
        self.client_call_ids = set[str]()
        self._own_call_ids = set[str]()
        """The calls of the agent's tools beside one of the client whose outputs are still missing."""

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any) -> None:
        """Note the tokens and the calls of one model."""
        del run_id, parent_run_id
        self.model_calls += 1
        for generation in (one for several in response.generations for one in several):
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                self._note_message(generation.message)

    def on_llm_new_token(self, token: object, **_: Any) -> None:
        """Stop a model whose run has been cancelled."""
        # asyncio.wait_for of Python 3.11, which langchain-openai uses, loses a cancellation that comes with a piece of
        # the answer. A synchronous node runs in a thread, which nobody can cancel.
        if self._served.turn.cancelled.is_set() or is_cancelled():
            raise asyncio.CancelledError

    def on_llm_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any) -> None:
        """Note the error of a model."""
        del run_id, parent_run_id
        self._model_error = error

    def note_output(self, call_id: str) -> None:
        """Note that a tool of the agent has ended."""
        self._own_call_ids.discard(call_id)
        self._stop_if_waiting()

    @contextmanager
    def convert_errors(self) -> Generator[None]:
        """Turn the error that a model has answered with a status into ours, which keeps the status."""
        try:
            yield
        except Exception as error:
            # The providers' own clients have these attributes; LangChain has no classes of its own for their errors.
            status: object = getattr(error, "status_code", None)
            if error is not self._model_error or not isinstance(status, int):
                raise
            headers: object = getattr(getattr(error, "response", None), "headers", None)
            known = cast("Mapping[str, str]", headers) if isinstance(headers, Mapping) else None
            raise model_error(status, getattr(error, "body", None) or str(error), known) from error

    def _note_message(self, message: AIMessage) -> None:
        if message.usage_metadata:
            self.usages.append(message.usage_metadata)
        self.finish = read_finish(message.response_metadata)
        calls = {call["id"] or "": call["name"] for call in message.tool_calls}
        of_client = {id for id, name in calls.items() if name in self._served.offered}
        if of_client:
            self.client_call_ids |= of_client
            self._own_call_ids |= calls.keys() - of_client
            self._stop_if_waiting()

    def _stop_if_waiting(self) -> None:
        # The tools of the agent still run; then the graph stops before its next step.
        if self._control and self.client_call_ids and not self._own_call_ids:
            self._control.request_drain()

    def count_tokens(self) -> parts.Usage:
        """Return the tokens of all calls of models so far; none if there were calls, and no model counts."""
        if self.model_calls and not self.usages:
            return parts.Usage()
        return parts.Usage(
            input_tokens=sum(usage["input_tokens"] for usage in self.usages),
            output_tokens=sum(usage["output_tokens"] for usage in self.usages),
            cached_tokens=sum(usage.get("input_token_details", {}).get("cache_read") or 0 for usage in self.usages),
            reasoning_tokens=sum(usage.get("output_token_details", {}).get("reasoning") or 0 for usage in self.usages),
        )


def is_cancelled() -> bool:
    """Tell whether the task that runs this has been cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread
        return False
    return task is not None and task.cancelling() > 0


def read_finish(metadata: Mapping[str, Any]) -> parts.Finish | None:
    """Return why a model was cut short; None if it was not."""
    details: dict[str, Any] = metadata.get("incomplete_details") or {}
    given = [details.get("reason"), *(metadata.get(key) for key in FINISH_KEYS)]
    raw = next((reason for reason in given if isinstance(reason, str)), "")
    reason = FINISH_REASONS.get(raw.lower())
    return parts.Finish(reason, raw) if reason else None


def to_text(value: object) -> str:
    """Return any output of a runnable as text."""
    if isinstance(value, list):
        messages = cast("list[object]", value)
        if messages and isinstance(messages[-1], BaseMessage):
            return messages[-1].text
    if isinstance(value, BaseMessage):
        return value.text
    return value if isinstance(value, str) else json.dumps(to_json_value(cast("object", value)), ensure_ascii=False)


def to_json_value(value: object) -> Any:
    """Return any value as JSON; what JSON cannot hold is written as text."""
    return json.loads(json.dumps(value, default=to_plain_value))


def to_plain_value(value: object) -> object:
    """Return a value that JSON cannot hold as one that it can."""
    dump = getattr(value, "model_dump", None)  # a pydantic model, as messages and documents are
    return dump(mode="json") if callable(dump) else str(value)

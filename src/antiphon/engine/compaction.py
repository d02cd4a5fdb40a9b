"""Compaction: replaces a conversation by its latest user messages and a sealed summary.

The model itself writes the summary, unless its agent has a compactor. It is asked inside the
conversation, and not about a transcript, so that it reads what it read before.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import asdict, replace

from antiphon.agents.turn import Turn
from antiphon.engine.ask import open_asker
from antiphon.engine.engine import ANONYMOUS, Caller, Engine
from antiphon.engine.fallback import Fallback
from antiphon.engine.models import Model, PartSink
from antiphon.engine.run import Run
from antiphon.protocol import context, parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import (
    Content,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    OutputText,
    Reasoning,
    RefusalContent,
    content_text,
    user_message,
)
from antiphon.protocol.request import CompactRequest, Request
from antiphon.protocol.response import CompactResource, Response, ResponseUsage, ResponseWarning
from antiphon.protocol.struct import encode
from antiphon.protocol.synth import Synth

KEPT_TOKENS = 20_000
"""How many tokens of user messages are kept, the latest first."""

SUMMARY_PROMPT = """\
Pause here. Write down what has to be known to go on with this conversation, for a reader who will \
see nothing of it but your words and the user's latest messages: what the user wants, and every \
wish and limit that still holds; what was found out, and what was decided; what was done, and how \
it ended; what is left to do. Give names, numbers, paths and identifiers exactly as they are. \
Answer none of the user's questions, call nothing, and write nothing else."""

SUMMARY_TRUNCATED = ResponseWarning(code="summary_cut", message="The model had to stop before its summary was whole.")


async def compact(engine: Engine, request: CompactRequest, caller: Caller = ANONYMOUS) -> CompactResource:
    """Compact a conversation; raises RequestError, UpstreamError or StoreError."""
    # Truncated, because compaction is what a client does about a conversation that exceeds the window.
    summary_request = Request(**asdict(request), truncation="auto")
    candidates = await engine.prepare_candidates(summary_request, caller)
    initial = Response.new(candidates[0].request, id=engine.ids("resp"), created_at=int(engine.clock()))
    fallback = SummaryFallback(candidates, initial.id, partial(open_asker, engine, caller, ()))
    run = Run(fallback.answer, fallback.turn, Synth(initial, ids=engine.ids, clock=engine.clock))
    response = await run.execute()
    if run.error:
        raise run.error
    if response.incomplete_details and response.incomplete_details.reason == "max_output_tokens":
        response = replace(response, warnings=[*(response.warnings or []), SUMMARY_TRUNCATED])
    answered = fallback.current
    summary = fallback.items or extract_summary(response)
    return CompactResource(
        id=response.id,
        created_at=initial.created_at,
        output=[
            *select_kept_messages([*answered.history.items, *answered.new_items]),
            answered.sealer.seal_compaction(summary, engine.ids("cmp")),
        ],
        usage=response.usage or ResponseUsage.of(0, 0),
        warnings=response.warnings,
    )


class SummaryFallback(Fallback):
    """Answers with a summary of the turn or, if an agent's compactor returns them, with `items`."""

    items: list[Item] | None = None

    async def ask(self, model: Model, turn: Turn, sink: PartSink) -> None:
        compacted = await model.compact(turn)
        if compacted is None:
            await model.answer(build_summary_turn(turn), sink)
            return
        if isinstance(compacted, str):
            sink.feed([parts.Text(compacted)])
            compacted = [user_message(compacted)]
        else:
            self.items = compacted
        output = Turn(request=Request(), input=compacted)
        sink.feed([parts.Usage(await model.count(turn), await model.count(output))])


def build_summary_turn(turn: Turn) -> Turn:
    """Return the turn that asks for a summary of a turn's conversation."""
    names = {item.call_id: item.name for item in turn.items if isinstance(item, FunctionCall)}
    items = (item for item in turn.items if not isinstance(item, Reasoning))
    history = [_describe_as_message(item, names) for item in items]
    return dataclasses.replace(turn, history=history, input=[user_message(SUMMARY_PROMPT)])


def _describe_as_message(item: Item, names: dict[str, str]) -> Item:
    """Return a call, an output or an extension item as a message; any other item unchanged."""
    # The summary request offers no tools, and some models then reject calls in its history.
    match item:
        case FunctionCall():
            text = f"[I called {item.name} with {item.arguments}]"
        case FunctionCallOutput():
            output: list[Content] = [InputText(text=item.output)] if isinstance(item.output, str) else item.output
            label = InputText(text=f"[{names.get(item.call_id, item.call_id)} gave:]")
            return Message(role="user", content=[label, *output])
        case ExtensionItem():
            text = f"[{encode(item).decode()}]"
        case _:
            return item
    return Message(role="assistant", content=[OutputText(text=text)])


def extract_summary(response: Response) -> str:
    """Return the text of the summary; raises UpstreamError if there is none."""
    if response.error:
        kind = "server_error" if response.error.type is UNSET else response.error.type
        raise UpstreamError(response.error.message, status=500, type=kind, code=response.error.code)
    stopped = response.incomplete_details and response.incomplete_details.reason
    # A truncated summary is better than none: the client cannot send the whole conversation.
    if response.output_text and stopped in (None, "max_output_tokens"):
        return response.output_text
    messages = (item for item in response.output if isinstance(item, Message))
    content = (part for message in messages for part in message.content)
    refused = "".join(content_text(part) for part in content if isinstance(part, RefusalContent))
    reason = f"it refused: {refused}" if refused else "it wrote nothing."
    if stopped:
        reason = f"it stopped early ({stopped})."
    message = f"The model '{response.model}' did not summarise the conversation: {reason}"
    raise UpstreamError(message, status=500, code=stopped or "compaction_failed")


def select_kept_messages(items: Sequence[Item]) -> list[Item]:
    """Return the messages that stay: all instructions, and the latest user messages."""
    room = KEPT_TOKENS
    chosen: list[Item] = []
    # From the end, because the latest messages are the ones that still matter.
    for item in reversed(items):
        if not isinstance(item, Message) or item.role == "assistant":
            continue
        if item.role == "user":
            room -= context.estimate_item(item)
        if item.role != "user" or room >= 0:
            chosen.append(replace(item, status=item.status or "completed"))
    return chosen[::-1]

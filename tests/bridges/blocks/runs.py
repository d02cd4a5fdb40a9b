"""Runs as block events: builders, small recordings in the recorder's own shape, and strategies."""

import json
from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st

from antiphon.bridges.blocks.events import (
    Block,
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    DeltaType,
    Error,
    Ping,
    RefusalBlock,
    Status,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.bridges.blocks.to_responses import BlockOptions, BlockTranslator
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from tests.protocol.builders import LATER, counting_ids
from tests.protocol.strategies import TEXTS
from tests.run_server import ROOT

STARTED, COMPLETED, CANCELLED, FAILED = (Status("Started"), Status("Completed"), Status("Cancelled"), Status("Failed"))
WEATHER = ToolUseBlock("call_1", "get_weather")

DELTAS: dict[type[Block], DeltaType] = {
    TextBlock: "Text",
    ThinkingBlock: "Thinking",
    RefusalBlock: "Refusal",
    ToolUseBlock: "InputJson",
    ToolResultBlock: "Text",
}


def make_translator(**options: object) -> BlockTranslator:
    """Make a translator whose every value is known beforehand."""
    chosen = BlockOptions(**options)  # pyright: ignore[reportArgumentType]
    return BlockTranslator("m", options=chosen, ids=counting_ids(), clock=lambda: float(LATER))


def translate(run: Iterable[BlockEvent], **options: object) -> tuple[list[Event], Response]:
    """Return the stream and the response that a whole run becomes."""
    translator = make_translator(**options)
    events = [event for step in run for event in translator.feed(step)] + translator.end()
    return events, translator.response


def block(index: int, kind: Block, *texts: str, stop_reason: StopReason | None = None) -> list[BlockEvent]:
    """Return the events of a whole block."""
    deltas = [BlockDelta(index, DELTAS[type(kind)], text) for text in texts]
    return [BlockStart(index, kind), *deltas, BlockStop(index, kind.block_type, stop_reason)]


def text_delta(text: str, index: int = 0) -> BlockDelta:
    """Return a piece of text."""
    return BlockDelta(index, "Text", text)


# As the providers' schemes of `llm_client` write them: OpenAI's and Ollama's have no starts of text and no stops of
# tools, Anthropic's stops a tool as text, Gemini's gives two calls of a tool one id.
SCHEMES: dict[str, list[BlockEvent]] = {
    "anthropic": [
        Usage(20, 1, 21, 0, 0),
        *block(0, TextBlock(), "I'll look", " it up."),
        Ping(),
        BlockStart(1, ToolUseBlock("toolu_1", "get_weather")),
        BlockDelta(1, "InputJson", ""),
        BlockDelta(1, "InputJson", '{"city": "Os'),
        BlockDelta(1, "InputJson", 'lo"}'),
        BlockStop(1, "Text"),
        Usage(20, 30, 50, 4, 0),
        COMPLETED,
    ],
    "openai": [
        text_delta(""),
        text_delta("I'll look it up."),
        BlockStart(0, WEATHER),
        BlockDelta(0, "InputJson", '{"city":'),
        BlockDelta(0, "InputJson", '"Oslo"}'),
        Usage(27, 9, 36),
    ],
    "gemini": [
        Usage(18, None, 18),
        text_delta("I'll look it up."),
        BlockStart(1, ToolUseBlock("call_get_weather", "get_weather")),
        BlockDelta(1, "InputJson", '{"city":"Oslo"}'),
        BlockStart(2, ToolUseBlock("call_get_weather", "get_weather")),
        BlockDelta(2, "InputJson", '{"city":"Rome"}'),
        Usage(16, 8, 24),
        BlockStop(0, "Text", "EndTurn"),
    ],
    "ollama": [
        *[text_delta("")] * 5,
        BlockStart(0, WEATHER),
        BlockDelta(0, "InputJson", '{"city":"Oslo"}'),
        text_delta(""),
        Usage(155, 51, 206),
    ],
}


def record(run: Iterable[BlockEvent]) -> list[bytes]:
    """Return a recording of a run, written here and not by the code that is tested."""
    names = ["Ping", "Usage", "Status", "Error", "BlockStart", "BlockDelta", "BlockStop", "BlockAbort"]
    lines: list[object] = [{"timestamp": 1_767_624_445, "model": "m", "description": "A call"}]
    for elapsed, event in enumerate(run):
        name = type(event).__name__
        fields = {field: getattr(event, field) for field in event.__struct_fields__}
        if isinstance(event, BlockStart):
            kind = event.block
            own = {field: getattr(kind, field) for field in kind.__struct_fields__}
            metadata = {kind.block_type: own} if own else kind.block_type
            fields = {"index": event.index, "block_type": kind.block_type, "metadata": metadata}
        if isinstance(event, BlockDelta):
            fields = {"index": event.index, "delta": {event.type: event.text}}
        data = json.dumps({name: fields}, separators=(",", ":"), ensure_ascii=False)
        lines.append({"elapsed_ms": elapsed, "event_type": f"Discriminant({names.index(name)})", "data": data})
    return [json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() for line in lines]


def find_recordings() -> list[Path]:
    """Return the runs that `llm_client` itself recorded, if they are beside the project."""
    folders = [parent / "shared/fixtures/llm_client" for parent in ROOT.parents]
    return sorted(path for folder in folders for path in folder.glob("*/*.jsonl"))


INDEXES = st.integers(0, 2)
BLOCK_TYPES = st.sampled_from(["Text", "Thinking", "ToolUse", "ToolResult", "Refusal"])
STOP_REASONS = st.sampled_from([None, None, "EndTurn", "MaxTokens", "StopSequence", "ToolUse"])
CALL_IDS = st.sampled_from(["call_1", "call_2", "", "long" * 20, "\ud83c"])
BLOCKS = st.one_of(
    st.builds(TextBlock),
    st.builds(ThinkingBlock),
    st.builds(RefusalBlock),
    st.builds(ToolUseBlock, CALL_IDS, st.sampled_from(["f", "g", ""])),
    st.builds(ToolResultBlock, CALL_IDS),
)
COUNTS = st.none() | st.integers(0, 1000)
EVENTS: st.SearchStrategy[BlockEvent] = st.one_of(
    st.builds(BlockStart, INDEXES, BLOCKS),
    st.builds(
        BlockDelta,
        INDEXES,
        st.sampled_from(["Text", "Thinking", "InputJson", "Refusal"]),
        TEXTS | st.sampled_from(["{", "}", "{}"]),
    ),
    st.builds(BlockStop, INDEXES, BLOCK_TYPES, STOP_REASONS),
    st.builds(BlockAbort, INDEXES, BLOCK_TYPES, st.just("Cancelled")),
    st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
    st.builds(Ping),
    st.builds(UnknownEvent, st.just("UnhandledSse"), st.just({})),
)
ENDS = st.one_of(
    st.builds(Status, st.sampled_from(["Started", "Completed", "Cancelled", "Failed"])),
    st.builds(Error, TEXTS, st.none() | st.just("overloaded")),
)
RUNS = st.tuples(st.lists(EVENTS, max_size=15), st.lists(ENDS, max_size=2), st.lists(EVENTS, max_size=2)).map(
    lambda lists: [event for events in lists for event in events]
)
"""Any events in any order; some come after the end."""

OPTIONS = st.fixed_dictionaries(
    {
        "started": st.sampled_from(
            ["created", "created+queued", "created+in_progress", "created+queued+in_progress", "in_progress"]
        ),
        "cancelled": st.sampled_from(["incomplete", "failed"]),
        "thinking": st.sampled_from(["raw", "summary"]),
        "empty_deltas": st.booleans(),
    }
)

PLAIN_TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=3)


@st.composite
def regular_runs(draw: st.DrawFn) -> list[BlockEvent]:
    """Draw a run that uses only what both formats have, written as the reverse translation writes it."""
    run: list[BlockEvent] = [STARTED]
    last: Block | None = None
    for index in range(draw(st.integers(1, 4))):
        last = draw(
            st.one_of(
                st.builds(TextBlock),
                st.builds(ThinkingBlock),
                st.builds(RefusalBlock),
                st.just(ToolUseBlock(f"call_{index}", "f")),
            )
        )
        texts = draw(PLAIN_TEXTS)
        # A refusal is known by its text, and a call without arguments gets an empty object.
        if isinstance(last, RefusalBlock | ToolUseBlock):
            texts = texts or ["{}"]
        run += block(index, last, *texts)
    stop = run.pop()
    assert isinstance(stop, BlockStop)
    usage = Usage(*draw(st.sampled_from([(10, 5, 15, 2), (0, 1, 1, 0)])))
    reason: StopReason = "ToolUse" if isinstance(last, ToolUseBlock) else "EndTurn"
    endings: dict[str, list[BlockEvent]] = {
        "completed": [BlockStop(stop.index, stop.block_type, reason), usage, COMPLETED],
        "tokens": [BlockStop(stop.index, stop.block_type, "MaxTokens"), usage, COMPLETED],
        "failed": [stop, usage, Error("It broke.", "overloaded"), FAILED],
    }
    # Reasoning items have no status, so nobody can see that one was cut off.
    if not isinstance(last, ThinkingBlock):
        endings["cancelled"] = [BlockAbort(stop.index, stop.block_type, "Cancelled"), usage, CANCELLED]
    return run + endings[draw(st.sampled_from(sorted(endings)))]

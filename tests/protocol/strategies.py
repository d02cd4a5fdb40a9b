"""Hypothesis strategies for parts: any that an adapter or agent could produce, sensible or not."""

from hypothesis import strategies as st

from antiphon.protocol import items, parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.items import LogProb, OutputText, ReasoningText, SummaryText, TopLogProb
from antiphon.protocol.parts import Part

KEYS = st.sampled_from([0, 1, 2, "a"])
PART_INDEXES = st.integers(0, 2)
TEXTS = st.sampled_from(
    ["", "a", "Hello, ", "wörld", "🎵", "\ud83c", "\udfb5", "\ud83cx", "line\nline", "\0", '"\\']
) | st.text(st.characters(), max_size=4)  # `characters()` leaves nothing out, surrogates included
NONEMPTY_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
PHASES = st.sampled_from([None, None, None, "commentary", "final_answer"])
LOGPROBS = st.builds(
    LogProb,
    token=st.just("a"),
    logprob=st.just(-0.5),
    bytes=st.just([97]),
    top_logprobs=st.lists(st.just(TopLogProb(token="b", logprob=-1.5, bytes=[98])), max_size=1),
)
ANNOTATIONS = st.sampled_from(
    [
        items.UrlCitation(url="https://a.example", start_index=0, end_index=1, title="A"),
        items.ExtensionAnnotation(type="acme:note", extra={"page": 3}),
    ]
)
ARGUMENTS = st.sampled_from(["", "{", "}", "{}", '{"a":', "1}", '{"a":1}', " ", "[]"]) | TEXTS

CONTENTS = st.one_of(
    st.builds(
        OutputText,
        text=TEXTS,
        annotations=st.lists(ANNOTATIONS, max_size=2),
        logprobs=st.lists(LOGPROBS, min_size=1, max_size=2),
    ),
    st.builds(OutputText, text=TEXTS),
    st.builds(items.RefusalContent, refusal=TEXTS),
)
STATUSES = st.sampled_from(["in_progress", "completed", "incomplete"])

ITEMS = st.one_of(
    st.builds(
        items.Message,
        id=st.just("theirs"),
        status=STATUSES,
        role=st.just("assistant"),
        content=st.lists(CONTENTS, max_size=3),
    ),
    st.builds(
        items.Reasoning,
        id=st.just("theirs"),
        summary=st.lists(st.builds(SummaryText, text=TEXTS), max_size=2),
        content=st.lists(st.builds(ReasoningText, text=TEXTS), max_size=2),
        encrypted_content=NONEMPTY_TEXTS,
    ),
    st.builds(items.Reasoning),
    st.builds(
        items.FunctionCall,
        id=st.just("theirs"),
        call_id=st.sampled_from(["call_x", "call_y"]),
        name=st.just("f"),
        arguments=ARGUMENTS,
        status=STATUSES,
    ),
    st.builds(
        items.FunctionCallOutput,
        call_id=st.just("call_x"),
        output=NONEMPTY_TEXTS | st.lists(st.builds(items.InputText, text=NONEMPTY_TEXTS), max_size=2),
        status=STATUSES,
    ),
    st.builds(items.Compaction, encrypted_content=NONEMPTY_TEXTS),
    st.builds(
        items.ExtensionItem,
        type=st.just("acme:search_call"),
        status=st.sampled_from(["searching", "completed", "incomplete", "failed"]),
        extra=st.just({"query": "q"}),
    ),
)

STATES = st.one_of(
    st.builds(items.Message, role=st.just("assistant"), content=st.lists(CONTENTS, max_size=2)),
    st.builds(items.Reasoning, content=st.lists(st.builds(ReasoningText, text=TEXTS), max_size=2)),
    st.builds(items.FunctionCallOutput, call_id=st.just("call_x"), output=TEXTS),
    st.builds(
        items.ExtensionItem,
        type=st.sampled_from(["acme:command", "acme:search_call"]),
        status=st.sampled_from(["in_progress", "completed", "failed"]),
        extra=st.sampled_from([{"query": "q"}, {"query": "r", "page": 2}]),
    ),
)

COUNTS = st.none() | st.integers(0, 1000)

PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(parts.Text, TEXTS, KEYS, PART_INDEXES, st.none() | st.lists(LOGPROBS, max_size=2), PHASES),
    st.builds(parts.Refusal, TEXTS, KEYS, PART_INDEXES),
    st.builds(parts.Reasoning, TEXTS, KEYS, PART_INDEXES, TEXTS, st.none() | NONEMPTY_TEXTS),
    st.builds(
        parts.Call,
        KEYS,
        st.sampled_from(["", "", "f", "functions.f"]),
        ARGUMENTS,
        st.sampled_from(["", "", "call_x", "call_y", "long" * 20]),
        st.booleans(),
    ),
    st.builds(parts.Annotation, ANNOTATIONS, KEYS, PART_INDEXES),
    st.builds(parts.Whole, ITEMS),
    st.builds(parts.ItemState, STATES, KEYS, st.booleans()),
    st.builds(
        parts.Extension, st.just("acme:tick"), st.sampled_from([{}, {"n": 1}, {"sequence_number": 99, "type": "other"}])
    ),
    st.builds(parts.Progress, st.sampled_from(["queued", "in_progress"])),
    st.builds(parts.Usage, COUNTS, COUNTS, COUNTS, COUNTS),
    st.builds(parts.Warn, NONEMPTY_TEXTS, NONEMPTY_TEXTS, st.none() | NONEMPTY_TEXTS),
)

FINISHES = st.builds(
    parts.Finish,
    st.sampled_from(["stop", "tool_calls", "length", "content_filter", "cancelled"]),
    st.none() | NONEMPTY_TEXTS,
)
FAILURES = st.builds(
    parts.Failure,
    st.builds(
        ErrorPayload,
        message=NONEMPTY_TEXTS,
        type=st.sampled_from(["server_error", "model_error"]),
        code=st.none() | st.just("overloaded"),
    ),
)

ENDINGS = st.lists(FINISHES | FAILURES, max_size=2)
"""How a source may stop: without a word, with a reason, broken, or all of it in turn."""


@st.composite
def part_lists(draw: st.DrawFn, max_size: int = 12) -> list[Part]:
    """Draw what a source says, from its first part to its last."""
    return [*draw(st.lists(PARTS, max_size=max_size)), *draw(ENDINGS)]

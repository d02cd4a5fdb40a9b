import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.agent.context_window import (
    ContextBudget,
    ContextStrategy,
    ContextUsage,
    drop_oldest_rounds,
    truncate_result,
)
from antiphon.protocol import context
from antiphon.protocol.context import find_unpaired_call_ids
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputText, Item, Message, Reasoning, user_message


def test_the_default_strategy_suits_a_large_window():
    assert ContextStrategy() == ContextStrategy(
        tool_result_token_limit=128_000, tool_round_limit=10, rebudget_threshold=0.75
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tool_result_token_limit": 0},
            "Invalid 'context_strategy.tool_result_token_limit': it must be at least 1, not 0.",
        ),
        ({"tool_round_limit": -1}, "Invalid 'context_strategy.tool_round_limit': it must be at least 1, not -1."),
        (
            {"rebudget_threshold": 75},
            "Invalid 'context_strategy.rebudget_threshold': it must be over 0 and at most 1, not 75.",
        ),
        (
            {"rebudget_threshold": float("nan")},
            "Invalid 'context_strategy.rebudget_threshold': it must be over 0 and at most 1, not nan.",
        ),
    ],
)
def test_an_invalid_strategy_is_rejected(fields: dict, message: str):
    with pytest.raises(RequestError) as refused:
        ContextStrategy(**fields)
    name = next(iter(fields))
    assert (str(refused.value), refused.value.payload.param) == (message, f"context_strategy.{name}")


def test_the_budget_is_the_window_without_answer_and_reserve():
    assert ContextBudget(128_000).usage(29_427) == ContextUsage(
        used_tokens=29_427, max_tokens=117_708, percentage=25.0, remaining_tokens=88_281
    )


def test_usage_can_exceed_the_window():
    assert ContextBudget(1_100, completion=100).usage(1_900) == ContextUsage(
        used_tokens=1_900, max_tokens=950, percentage=200.0, remaining_tokens=0
    )


@pytest.mark.parametrize(("window", "limit"), [(4_097, 0), (4_096, 1_945), (2_000, 950), (1, 0)])
def test_a_small_window_is_split_between_input_and_answer(window: int, limit: int):
    assert ContextBudget(window).limit == max(1, limit)


def test_an_empty_window_is_rejected():
    with pytest.raises(RequestError, match="context_window"):
        ContextBudget(0)


def test_a_threshold_is_exceeded_when_it_is_reached():
    window = ContextBudget(1_100, completion=100)
    assert [window.usage(used).exceeds(0.5) for used in (0, 474, 475, 950)] == [False, False, True, True]


def test_a_result_within_the_limit_is_not_truncated():
    assert truncate_result("search", "x" * 400, 100) is None


def test_a_result_is_truncated_at_a_line_end_with_a_marker():
    text = "".join(f"row {number:06}\n" for number in range(1_000))
    cut = truncate_result("search", text, 100)
    assert cut is not None
    shortened, action = cut
    rows = "".join(f"row {number:06}\n" for number in range(27))
    assert (action.tool_name, action.original_tokens, action.truncated_tokens) == ("search", 2_750, 75)
    assert shortened == (f"{rows}\n\n[truncated by search: original ~2750 tokens, showing first ~75 tokens]")


@pytest.mark.parametrize(
    ("text", "last"),
    [
        pytest.param('{"a": 12345},' * 200, "},", id="objects"),
        pytest.param("[1, 2], " * 300, "],", id="arrays"),
        pytest.param("12345," * 400, "12345,", id="numbers"),
        pytest.param("line\r\n" * 400, "line\r\n", id="lines"),
        pytest.param("{}" + "x" * 2_000, "xxxx", id="a boundary that comes too early"),
        pytest.param("x" * 2_000, "xxxx", id="no boundary"),
    ],
)
def test_a_result_is_truncated_at_the_end_of_a_json_value(text: str, last: str):
    cut = truncate_result("t", text, 100)
    assert cut is not None
    shown, _, marker = cut[0].partition("\n\n[truncated by t: ")
    assert (shown[-len(last) :], text.startswith(shown)) == (last, True)
    assert marker.startswith(f"original ~{context.estimate_text(text)} tokens, showing first ~")


@pytest.mark.parametrize("grapheme", ["👩‍👩‍👧‍👦", "🇫🇷", "e\u0301\u0323", "\ud83c\udfb5", "}\u0301"])
@pytest.mark.parametrize("limit", range(60, 68))
def test_a_result_is_never_truncated_inside_a_grapheme(grapheme: str, limit: int):
    cut = truncate_result("t", grapheme * 300, limit)
    assert cut is not None
    shown, _, _ = cut[0].partition("\n\n[truncated")
    assert shown == grapheme * (len(shown) // len(grapheme)) != ""


@settings(deadline=None)
@given(
    text=st.text(st.sampled_from("ab1,\n\r}]é中👩\u200d🇫\u0301") | st.characters()),
    times=st.integers(1, 60),
    limit=st.integers(1, 120),
    name=st.text(st.characters(codec="ascii", categories=["L"]), max_size=64),
)
def test_a_truncated_result_is_within_its_limit(text: str, times: int, limit: int, name: str):
    text *= times
    cut = truncate_result(name, text, limit)
    if cut is None:
        assert context.estimate_text(text) <= limit
        return
    shortened, action = cut
    assert context.estimate_text(shortened) <= limit < context.estimate_text(text) == action.original_tokens
    marker = (
        f"\n\n[truncated by {name}: original ~{action.original_tokens} tokens, "
        f"showing first ~{action.truncated_tokens} tokens]"
    )
    if context.estimate_text(marker) > limit:
        return  # there is no room even for the marker
    shown = shortened.removesuffix(marker)
    assert (shortened, action.truncated_tokens) == (shown + marker, context.estimate_text(shown))
    assert text.startswith(shown)
    assert len(shown) in {0, *(match.end() for match in regex.finditer(r"\X", text))}


def test_most_of_the_limit_is_used():
    cut = truncate_result("t", "né " * 400_000, 128_000)
    assert cut is not None
    assert 127_900 <= context.estimate_text(cut[0]) <= 128_000


def turn(*ids: str) -> list[Item]:
    """Build a round: reasoning, calls and their outputs."""
    return [
        Reasoning(),
        *(FunctionCall(call_id=id, name="f", arguments="{}") for id in ids),
        *(FunctionCallOutput(call_id=id, output="ok") for id in ids),
    ]


def note(dropped: int, kept: int) -> Message:
    """Build the note on dropped rounds."""
    text = (
        f"[Context management: {dropped} earlier tool calling round(s) were removed to stay "
        f"within token limits. The most recent {kept} round(s) are preserved below.]"
    )
    return Message(role="system", content=[InputText(text=text)])


def test_the_oldest_rounds_are_dropped_with_a_note():
    header: list[Item] = [user_message("before"), user_message("now")]
    rounds = [turn("a"), turn("b", "c"), turn("d"), turn("e")]
    assert drop_oldest_rounds(header, rounds, 2) == ([*header, note(2, 2), *turn("d"), *turn("e")], 2)


@pytest.mark.parametrize("keep", [2, 3])
def test_without_dropped_rounds_there_is_no_note(keep: int):
    rounds = [turn("a"), turn("b")]
    assert drop_oldest_rounds([user_message("hi")], rounds, keep) == ([user_message("hi"), *turn("a"), *turn("b")], 0)


def test_all_rounds_can_be_dropped():
    assert drop_oldest_rounds([user_message("hi")], [turn("a")], 0) == ([user_message("hi"), note(1, 0)], 1)


def test_a_call_that_is_answered_later_is_kept_with_its_answer():
    late: list[Item] = [FunctionCall(call_id="a", name="f", arguments="{}"), *turn("b")]
    answer: list[Item] = [FunctionCallOutput(call_id="a", output="at last"), *turn("d")]
    rounds = [turn("x"), late, turn("c"), answer]
    assert drop_oldest_rounds([], rounds, 1) == ([note(1, 3), *late, *turn("c"), *answer], 1)


def test_repeated_call_ids_do_not_keep_old_rounds():
    rounds = [turn("call_0", "call_1") for _ in range(5)]
    assert drop_oldest_rounds([], rounds, 2) == ([note(3, 2), *rounds[3], *rounds[4]], 3)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.integers(-1, 9))
def test_calls_and_outputs_stay_together_and_the_latest_rounds_are_kept(sizes: list[int], keep: int):
    rounds = [turn(*(f"{n}.{i}" for i in range(size))) for n, size in enumerate(sizes)]
    items, dropped = drop_oldest_rounds([user_message("hi")], rounds, keep)
    kept = [item for round in rounds[dropped:] for item in round]
    assert items == [user_message("hi"), *([note(dropped, len(rounds) - dropped)] if dropped else []), *kept]
    assert dropped == max(0, len(rounds) - max(0, keep))
    assert find_unpaired_call_ids(items) == set()

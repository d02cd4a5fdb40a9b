"""Threads: what overlaps is said once, and an answer becomes the message that its client knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.content import OutputText, Refusal
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, Status
from antiphon.core.threads import (
    BEFORE_CALL,
    BEFORE_TEXT,
    Json,
    assistant,
    bare,
    merge,
    same,
    thinking,
)

WORDS = st.sampled_from(["a", "b", ""])
MESSAGES = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, WORDS),
    st.builds(lambda text: {"role": "assistant", "content": text, "toolCalls": []}, WORDS),
    st.builds(lambda text: {"role": "assistant", "content": text}, WORDS),
    st.builds(
        lambda value: {"role": "tool", "content": {"status": "fulfilled", "value": value}},
        st.sampled_from([1, True, 1.0, None, [1], [True], {"x": 1}]),
    ),
)
THREADS = st.lists(MESSAGES, max_size=5)


def said(text: str) -> Json:
    """Return a message of the user's."""
    return {"role": "user", "content": text}


# --- merging ---------------------------------------------------------------------------------


@given(THREADS, THREADS)
def test_a_thread_grows_by_all_but_its_longest_overlap(saved: list[Json], new: list[Json]) -> None:
    merged = merge(saved, new)
    overlap = len(saved) + len(new) - len(merged)
    assert merged[: len(saved)] == saved
    assert merged[len(saved) :] == new[overlap:]
    assert same(saved[len(saved) - overlap :], new[:overlap])
    for longer in range(overlap + 1, min(len(saved), len(new)) + 1):
        assert not same(saved[-longer:], new[:longer])


@given(THREADS, THREADS)
def test_what_is_sent_again_changes_nothing(saved: list[Json], new: list[Json]) -> None:
    assert merge(saved, []) == saved
    assert merge([], new) == new
    assert merge(saved, saved) == saved
    assert merge(merge(saved, new), merge(saved, new)) == merge(saved, new)


def test_only_the_end_of_a_thread_overlaps() -> None:
    a, b, c = said("a"), said("b"), said("c")
    assert merge([a, b], [b, c]) == [a, b, c]
    assert merge([a, b], [a, c]) == [a, b, a, c]
    assert merge([a, a], [a, a, b]) == [a, a, b]


@pytest.mark.parametrize(
    "new",
    [
        pytest.param([said("a")] * 5000, id="all the same"),
        pytest.param([said("a")] * 4999 + [said("b")], id="another at the end"),
        pytest.param([said("b")] + [said("a")] * 4999, id="another at the start"),
        pytest.param(([said("a")] * 49 + [said("b")]) * 100, id="another now and then"),
    ],
)
def test_what_repeats_is_compared_a_few_times_only(
    new: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def counted(one: object, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one == other

    saved = [said("a")] * 5000
    monkeypatch.setattr("antiphon.core.threads.same", counted)
    merged = merge(saved, new)
    assert compared <= 4 * len(saved)
    overlap = len(saved) + len(new) - len(merged)
    assert merged == [*saved, *new[overlap:]]
    assert overlap == next(size for size in range(5000, -1, -1) if saved[:size] == new[:size])


def test_messages_are_compared_to_the_last_key() -> None:
    plain: Json = {"role": "assistant", "content": "a"}
    assert merge([plain], [plain | {"toolCalls": []}]) == [plain, plain | {"toolCalls": []}]
    assert not same({"x": True}, {"x": 1})
    assert not same([1], [1, 1])
    assert same({"x": [1, None, "a"]}, {"x": [1.0, None, "a"]})


# --- the answer ------------------------------------------------------------------------------


def words(text: str) -> Message:
    """Return a message of the model's."""
    return Message(role="assistant", content=[OutputText(text=text)])


def call(id: str, arguments: str = "{}", status: Status = "completed") -> FunctionCall:
    """Return a call."""
    return FunctionCall(id=id, call_id=id, name="f", arguments=arguments, status=status)


def called(index: int, id: str, arguments: str = "{}", **more: object) -> Json:
    """Return a call as a client knows it."""
    function = {"name": "f", "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function, **more}


def test_an_answer_has_all_its_words_and_its_calls_in_order() -> None:
    refused = Message(role="assistant", content=[Refusal(refusal=" No.")])
    items: list[Item] = [words("Hello."), refused, call("x", '{"a":1}'), call("y")]
    assert assistant(items) == {
        "role": "assistant",
        "content": "Hello. No.",
        "toolCalls": [called(0, "x", '{"a":1}'), called(1, "y")],
    }


def test_an_answer_of_nothing_is_an_empty_one() -> None:
    assert assistant([]) == {"role": "assistant", "content": "", "toolCalls": []}


def test_calls_that_the_response_answers_or_that_were_cut_short_are_not_the_clients() -> None:
    own = [call("own"), FunctionCallOutput(call_id="own", output="done")]
    items: list[Item] = [*own, words("So."), call("cut", '{"a', "incomplete"), call("x")]
    assert assistant(items)["toolCalls"] == [called(0, "x")]


def test_thinking_stays_with_the_call_that_it_led_to() -> None:
    first, second, third = (Reasoning(encrypted_content=text) for text in ("1", "2", "3"))
    items = [first, words("So."), second, call("x"), call("y"), third, call("z"), Reasoning()]
    answer = assistant(items)
    x, y, z = answer["toolCalls"]  # type: ignore[misc]
    assert [thinking(x.get("metadata"), place) for place in (BEFORE_TEXT, BEFORE_CALL)] == [
        ["1"],
        ["2"],
    ]
    assert "metadata" not in y
    assert z["metadata"] == {"antiphon": {"before_call": ["3"]}}
    assert bare(answer)["toolCalls"] == [called(0, "x"), called(1, "y"), called(2, "z")]


def test_thinking_without_words_stands_before_its_call() -> None:
    answer = assistant([Reasoning(encrypted_content="1"), words(""), call("x")])
    assert answer["toolCalls"] == [called(0, "x", metadata={"antiphon": {"before_call": ["1"]}})]


def test_what_is_not_ours_in_a_message_stays() -> None:
    theirs = {"google": {"thoughtSignature": "x"}}
    message: Json = {"toolCalls": [called(0, "x", metadata=theirs | {"antiphon": {}}), "odd"]}
    assert bare(message) == {"toolCalls": [called(0, "x", metadata=theirs), "odd"]}
    others: list[Json] = [{"role": "user"}, {"toolCalls": None}, {"toolCalls": [called(0, "x")]}]
    assert [bare(other) for other in others] == others


def test_thinking_that_a_client_changed_is_not_read() -> None:
    for metadata in (None, [], {"antiphon": 1}, {"antiphon": {"before_call": "x"}}):
        assert thinking(metadata, BEFORE_CALL) == []
    assert thinking({"antiphon": {"before_call": [1, "x"]}}, BEFORE_CALL) == ["x"]

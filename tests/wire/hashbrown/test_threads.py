"""Merging threads, and responses as assistant messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemStatus,
    Message,
    OutputText,
    Reasoning,
    RefusalContent,
)
from antiphon.wire.hashbrown.request import (
    BEFORE_CALL,
    BEFORE_TEXT,
    Json,
    assistant_message,
    is_same_json,
    merge_messages,
    read_sealed_reasoning,
    strip_metadata,
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


def user_message(text: str) -> Json:
    """Return a user message."""
    return {"role": "user", "content": text}


@given(THREADS, THREADS)
def test_the_longest_overlap_is_included_once(saved: list[Json], new: list[Json]) -> None:
    merged = merge_messages(saved, new)
    overlap = len(saved) + len(new) - len(merged)
    assert merged[: len(saved)] == saved
    assert merged[len(saved) :] == new[overlap:]
    assert is_same_json(saved[len(saved) - overlap :], new[:overlap])
    for longer in range(overlap + 1, min(len(saved), len(new)) + 1):
        assert not is_same_json(saved[-longer:], new[:longer])


@given(THREADS, THREADS)
def test_resending_messages_changes_nothing(saved: list[Json], new: list[Json]) -> None:
    assert merge_messages(saved, []) == saved
    assert merge_messages([], new) == new
    assert merge_messages(saved, saved) == saved
    assert merge_messages(merge_messages(saved, new), merge_messages(saved, new)) == merge_messages(saved, new)


def test_only_the_end_of_a_thread_overlaps() -> None:
    a, b, c = user_message("a"), user_message("b"), user_message("c")
    assert merge_messages([a, b], [b, c]) == [a, b, c]
    assert merge_messages([a, b], [a, c]) == [a, b, a, c]
    assert merge_messages([a, a], [a, a, b]) == [a, a, b]


@pytest.mark.parametrize(
    "new",
    [
        pytest.param([user_message("a")] * 5000, id="all the same"),
        pytest.param([user_message("a")] * 4999 + [user_message("b")], id="another at the end"),
        pytest.param([user_message("b")] + [user_message("a")] * 4999, id="another at the start"),
        pytest.param(([user_message("a")] * 49 + [user_message("b")]) * 100, id="another now and then"),
    ],
)
def test_merging_repeated_messages_takes_linear_time(new: list[Json], monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def count(one: object, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one == other

    saved = [user_message("a")] * 5000
    monkeypatch.setattr("antiphon.wire.hashbrown.request.is_same_json", count)
    merged = merge_messages(saved, new)
    assert compared <= 4 * len(saved)
    overlap = len(saved) + len(new) - len(merged)
    assert merged == [*saved, *new[overlap:]]
    assert overlap == next(size for size in range(5000, -1, -1) if saved[:size] == new[:size])


def test_messages_are_compared_deeply() -> None:
    plain: Json = {"role": "assistant", "content": "a"}
    assert merge_messages([plain], [plain | {"toolCalls": []}]) == [plain, plain | {"toolCalls": []}]
    assert not is_same_json({"x": True}, {"x": 1})
    assert not is_same_json([1], [1, 1])
    assert is_same_json({"x": [1, None, "a"]}, {"x": [1.0, None, "a"]})


def assistant_text(text: str) -> Message:
    """Return an assistant message item."""
    return Message(role="assistant", content=[OutputText(text=text)])


def make_call(id: str, arguments: str = "{}", status: ItemStatus = "completed") -> FunctionCall:
    """Return a call item."""
    return FunctionCall(id=id, call_id=id, name="f", arguments=arguments, status=status)


def tool_call(index: int, id: str, arguments: str = "{}", **more: object) -> Json:
    """Return a call as the client sees it."""
    function = {"name": "f", "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function, **more}


def test_an_assistant_message_has_text_and_calls_in_order() -> None:
    refused = Message(role="assistant", content=[RefusalContent(refusal=" No.")])
    items: list[Item] = [assistant_text("Hello."), refused, make_call("x", '{"a":1}'), make_call("y")]
    assert assistant_message(items) == {
        "role": "assistant",
        "content": "Hello. No.",
        "toolCalls": [tool_call(0, "x", '{"a":1}'), tool_call(1, "y")],
    }


def test_an_empty_response_is_an_empty_message() -> None:
    assert assistant_message([]) == {"role": "assistant", "content": "", "toolCalls": []}


def test_answered_and_incomplete_calls_are_left_out() -> None:
    own = [make_call("own"), FunctionCallOutput(call_id="own", output="done")]
    items: list[Item] = [*own, assistant_text("So."), make_call("cut", '{"a', "incomplete"), make_call("x")]
    assert assistant_message(items)["toolCalls"] == [tool_call(0, "x")]


def test_reasoning_is_stored_with_the_following_call() -> None:
    first, second, third = (Reasoning(encrypted_content=text) for text in ("1", "2", "3"))
    items = [first, assistant_text("So."), second, make_call("x"), make_call("y"), third, make_call("z"), Reasoning()]
    answer = assistant_message(items)
    x, y, z = answer["toolCalls"]  # type: ignore[misc]
    assert [read_sealed_reasoning(x.get("metadata"), place) for place in (BEFORE_TEXT, BEFORE_CALL)] == [["1"], ["2"]]
    assert "metadata" not in y
    assert z["metadata"] == {"antiphon": {"before_call": ["3"]}}
    assert strip_metadata(answer)["toolCalls"] == [tool_call(0, "x"), tool_call(1, "y"), tool_call(2, "z")]


def test_reasoning_without_text_is_before_its_call() -> None:
    answer = assistant_message([Reasoning(encrypted_content="1"), assistant_text(""), make_call("x")])
    assert answer["toolCalls"] == [tool_call(0, "x", metadata={"antiphon": {"before_call": ["1"]}})]


def test_only_our_metadata_is_stripped() -> None:
    theirs = {"google": {"thoughtSignature": "x"}}
    message: Json = {"toolCalls": [tool_call(0, "x", metadata=theirs | {"antiphon": {}}), "odd"]}
    assert strip_metadata(message) == {"toolCalls": [tool_call(0, "x", metadata=theirs), "odd"]}
    others: list[Json] = [{"role": "user"}, {"toolCalls": None}, {"toolCalls": [tool_call(0, "x")]}]
    assert [strip_metadata(other) for other in others] == others


def test_metadata_that_a_client_changed_is_ignored() -> None:
    for metadata in (None, [], {"antiphon": 1}, {"antiphon": {"before_call": "x"}}):
        assert read_sealed_reasoning(metadata, BEFORE_CALL) == []
    assert read_sealed_reasoning({"antiphon": {"before_call": [1, "x"]}}, BEFORE_CALL) == ["x"]

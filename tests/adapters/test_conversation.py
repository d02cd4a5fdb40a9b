"""Conversations as turns: which output belongs to which call."""

import pytest

from antiphon.adapters.conversation import ConversationTurn, split_turns
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    CUSTOM_TOOL_CALL_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    user_message,
)

HI = user_message("Hi")


def make_call(call_id: str, name: str = "f") -> FunctionCall:
    """Make a call."""
    return FunctionCall(call_id=call_id, name=name, arguments="{}")


def make_output(call_id: str, output: str = "1") -> FunctionCallOutput:
    """Make an output."""
    return FunctionCallOutput(call_id=call_id, output=output)


CUSTOM = ExtensionItem(type=CUSTOM_TOOL_CALL, extra={"call_id": "b", "name": "c", "input": "+1"})
DONE = ExtensionItem(type=CUSTOM_TOOL_CALL_OUTPUT, extra={"call_id": "b", "output": "done"})


def turn_summaries(*items: Item) -> list[tuple[str, list[Item]]]:
    """Return a story as plain pairs."""
    return [(speech.role, speech.items) for speech in split_turns(items)]


def test_a_turn_without_calls_is_unchanged():
    assert split_turns([HI]) == [ConversationTurn("user", [HI])]


@pytest.mark.parametrize("outputs", [[make_output("a"), DONE], [DONE, make_output("a")]])
def test_outputs_follow_their_calls_in_order_whatever_kind_they_are(outputs: list[Item]):
    assert turn_summaries(make_call("a"), CUSTOM, *outputs, HI) == [
        ("assistant", [make_call("a"), CUSTOM]),
        ("tool", [make_output("a"), make_output("b", "done")]),
        ("user", [HI]),
    ]


@pytest.mark.parametrize("more", [[], [make_output("a", "2")]])
def test_an_output_with_a_reused_id_belongs_to_the_last_call_before_it(more: list[Item]):
    items = [make_call("a"), make_output("a"), *more, HI, make_call("a", "g"), make_output("a", "G")]
    assert turn_summaries(*items) == [
        ("assistant", [make_call("a")]),
        ("tool", [make_output("a")]),
        ("user", [HI]),
        ("assistant", [make_call("a", "g")]),
        ("tool", [make_output("a", "G")]),
    ]


def test_two_calls_of_one_turn_may_have_the_same_id():
    assert turn_summaries(make_call("a"), make_call("a", "g"), make_output("a"), make_output("a", "G")) == [
        ("assistant", [make_call("a"), make_call("a", "g")]),
        ("tool", [make_output("a"), make_output("a", "G")]),
    ]


def test_an_output_may_stand_before_its_call():
    assert turn_summaries(make_output("a"), HI, make_call("a")) == [
        ("user", [HI]),
        ("assistant", [make_call("a")]),
        ("tool", [make_output("a")]),
    ]

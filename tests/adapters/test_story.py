"""A conversation told in turns: which output answers which call."""

import pytest

from antiphon.adapters.story import Speech, tell
from antiphon.core.items import (
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    user,
)

HI = user("Hi")


def calls(call_id: str, name: str = "f") -> FunctionCall:
    """Make a call."""
    return FunctionCall(call_id=call_id, name=name, arguments="{}")


def gave(call_id: str, output: str = "1") -> FunctionCallOutput:
    """Make an output."""
    return FunctionCallOutput(call_id=call_id, output=output)


CUSTOM = ExtensionItem(type=CUSTOM_CALL, extra={"call_id": "b", "name": "c", "input": "+1"})
DONE = ExtensionItem(type=CUSTOM_OUTPUT, extra={"call_id": "b", "output": "done"})


def told(*items: Item) -> list[tuple[str, list[Item]]]:
    """Return a story as plain pairs."""
    return [(speech.role, speech.items) for speech in tell(items)]


def test_a_turn_without_calls_is_told_as_it_is():
    assert tell([HI]) == [Speech("user", [HI])]


@pytest.mark.parametrize("outputs", [[gave("a"), DONE], [DONE, gave("a")]])
def test_outputs_follow_their_calls_in_order_whatever_kind_they_are(outputs: list[Item]):
    assert told(calls("a"), CUSTOM, *outputs, HI) == [
        ("assistant", [calls("a"), CUSTOM]),
        ("tool", [gave("a"), gave("b", "done")]),
        ("user", [HI]),
    ]


@pytest.mark.parametrize("more", [[], [gave("a", "2")]])
def test_an_id_that_is_used_again_means_the_call_before_the_output(more: list[Item]):
    items = [calls("a"), gave("a"), *more, HI, calls("a", "g"), gave("a", "G")]
    assert told(*items) == [
        ("assistant", [calls("a")]),
        ("tool", [gave("a")]),
        ("user", [HI]),
        ("assistant", [calls("a", "g")]),
        ("tool", [gave("a", "G")]),
    ]


def test_two_calls_of_one_turn_may_have_the_same_id():
    assert told(calls("a"), calls("a", "g"), gave("a"), gave("a", "G")) == [
        ("assistant", [calls("a"), calls("a", "g")]),
        ("tool", [gave("a"), gave("a", "G")]),
    ]


def test_an_output_may_stand_before_its_call():
    assert told(gave("a"), HI, calls("a")) == [
        ("user", [HI]),
        ("assistant", [calls("a")]),
        ("tool", [gave("a")]),
    ]

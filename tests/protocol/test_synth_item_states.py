"""Items that their source opens and ends: they stay open, whatever else comes."""

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
)
from antiphon.protocol.parts import Finish, ItemState, Part, Text
from antiphon.protocol.parts import Reasoning as Thinking
from tests.protocol.builders import (
    completed_event,
    final_response,
    incomplete_event,
    item_added,
    item_done,
    make_message,
    number_events,
    start_events,
    synthesize,
    text_part_events,
)

EMPTY = Message(role="assistant", content=[OutputText(text="")])


def command(output: str, id: str = "item_0", status: str = "in_progress") -> ExtensionItem:
    return ExtensionItem(type="acme:command", id=id, status=status, extra={"output": output})


def test_an_item_is_announced_when_it_begins_and_done_with_its_last_state():
    stream = synthesize(
        ItemState(command(""), "c"), ItemState(command("a"), "c"), ItemState(command("ab"), "c", complete=True)
    )
    done = command("ab", status="completed")
    assert stream == number_events(
        start_events(), item_added(0, command("")), item_done(0, done), completed_event(done)
    )


def test_a_message_stays_open_while_another_item_begins_and_ends():
    stream = synthesize(
        ItemState(EMPTY, "m"),
        Text("Hel", "m"),
        ItemState(command(""), "c"),
        Text("lo", "m"),
        ItemState(command("ab", status="failed"), "c", complete=True),
        ItemState(EMPTY, "m", complete=True),
    )
    hello, failed = make_message("msg_0", "Hello"), command("ab", status="failed")
    added, delta, more, *done = text_part_events("msg_0", 0, 0, "Hel", "lo")
    assert stream == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        [added, delta],
        item_added(1, command("")),
        [more, *done],
        item_done(0, hello),
        item_done(1, failed),
        completed_event(hello, failed),
    )


def test_two_messages_grow_side_by_side():
    stream = synthesize(
        ItemState(EMPTY, 1), ItemState(EMPTY, 2), Text("a", 1), Text("b", 2), Text("c", 1), Text("d", 2)
    )
    assert find_violations(stream) == []
    assert final_response(stream).output == [make_message("msg_0", "ac"), make_message("msg_1", "bd")]


def test_what_a_message_or_reasoning_holds_when_it_begins_is_streamed():
    stream = synthesize(
        ItemState(Reasoning(content=[ReasoningText(text="Let me")], encrypted_content="x"), 0),
        ItemState(Message(role="assistant", content=[OutputText(text="He")]), 1),
        Thinking(" see", 0),
        Text("llo", 1),
    )
    assert find_violations(stream) == []
    assert final_response(stream).output == [
        Reasoning(id="rs_0", content=[ReasoningText(text="Let me see")], encrypted_content="x"),
        make_message("msg_0", "Hello"),
    ]


@pytest.mark.parametrize("complete", [True, False])
def test_the_last_state_counts_even_if_the_item_was_cut_off(complete: bool):
    end: list[Part] = [] if complete else [Finish("length")]
    output = FunctionCallOutput(call_id="call_1", output="")
    states = [ItemState(output, 0), ItemState(FunctionCallOutput(call_id="call_1", output="so far"), 0, complete)]
    [item] = final_response(synthesize(*states, *end)).output
    status = "completed" if complete else "incomplete"
    assert item == FunctionCallOutput(id="fco_0", call_id="call_1", output="so far", status=status)


def test_an_open_message_is_incomplete_in_an_incomplete_response():
    cut = make_message("msg_0", "Hel", status="incomplete")
    assert synthesize(ItemState(EMPTY, 0), Text("Hel"), Finish("length"))[-1:] == [
        incomplete_event("max_output_tokens", cut)(sequence_number=8)
    ]


def test_an_item_of_another_type_with_the_same_key_is_another_item():
    stream = synthesize(ItemState(EMPTY, 0), ItemState(command("a"), 0), ItemState(command("b"), 0, complete=True))
    assert find_violations(stream) == []
    assert final_response(stream).output == [make_message("msg_0", ""), command("b", status="completed")]


def test_an_output_never_fails():
    failed = FunctionCallOutput(call_id="call_1", output="No such file", status="failed")  # pyright: ignore[reportArgumentType]
    output = FunctionCallOutput(id="fco_0", call_id="call_1", output="No such file", status="completed")
    assert final_response(synthesize(ItemState(failed, 0, complete=True))).output == [output]


@pytest.mark.parametrize(
    "item",
    [FunctionCall.of("f", {}, call_id="call_1"), ExtensionItem(type=CUSTOM_TOOL_CALL, extra={"call_id": "call_1"})],
)
def test_calls_have_parts_of_their_own(item: FunctionCall | ExtensionItem):
    with pytest.raises(LocalProtocolError, match="use Call or Whole"):
        synthesize(ItemState(item, 0))  # pyright: ignore[reportArgumentType]

import pytest

from antiphon.protocol.context import (
    MISSING_OUTPUT_TEXT,
    assemble,
    check_outputs_match_calls,
    estimate_items,
    find_unpaired_call_ids,
    fit_to_window,
    repair_unpaired,
)
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    CUSTOM_TOOL_CALL_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    ItemReference,
    Message,
    Reasoning,
    ReasoningText,
    Role,
    user_message,
)
from tests.protocol.builders import make_message


def make_text_message(text: str, role: Role = "user") -> Message:
    """Make a message of anybody's."""
    return Message(role=role, content=[InputText(text=text)])


def make_call(call_id: str) -> FunctionCall:
    """Make a call."""
    return FunctionCall(call_id=call_id, name="f", arguments="{}")


def make_output(call_id: str) -> FunctionCallOutput:
    """Make the output of a call."""
    return FunctionCallOutput(call_id=call_id, output="42")


def make_reasoning(text: str) -> Reasoning:
    """Make a reasoning item."""
    return Reasoning(content=[ReasoningText(text=text)])


def test_history_comes_before_input():
    history: list[Item] = [user_message("Hi"), make_message("msg_1", "Hello"), make_call("x")]
    input: list[Item] = [make_output("x"), user_message("Bye")]
    assert assemble(history, input) == [*history, *input]


def test_no_history_and_no_input_are_an_empty_context():
    assert assemble([], []) == []


def test_a_reference_is_replaced_by_the_item_of_the_history():
    hello = make_message("msg_1", "Hello")
    assert assemble([hello], [ItemReference(id="msg_1")]) == [hello, hello]


def test_a_reference_is_replaced_by_an_item_that_is_stored_elsewhere():
    stored = {"msg_7": make_message("msg_7", "Hello")}
    context = assemble([], [ItemReference(id="msg_7"), user_message("Hi")], stored.get)
    assert context == [stored["msg_7"], user_message("Hi")]


@pytest.mark.parametrize("find", [None, {}.get])
def test_a_reference_to_an_unknown_item_is_rejected(find: object):
    with pytest.raises(RequestError) as caught:
        assemble([], [user_message("Hi"), ItemReference(id="msg_7")], find)  # pyright: ignore[reportArgumentType]
    assert caught.value.payload == ErrorPayload(
        message="Item 'msg_7' not found. Send the item itself, or the id of a stored one.",
        type="invalid_request",
        param="input[1].id",
        code="item_not_found",
    )


def test_a_reference_to_a_call_pairs_with_its_output():
    call = make_call("x")
    assert assemble([], [ItemReference(id="fc_1"), make_output("x")], {"fc_1": call}.get) == [call, make_output("x")]


@pytest.mark.parametrize(
    ("history", "input"),
    [
        ([], [make_output("x")]),
        ([make_call("y")], [user_message("Hi"), make_output("x")]),
        ([], [make_output("x"), make_call("x")]),
    ],
)
def test_an_output_without_its_call_is_rejected(history: list[Item], input: list[Item]):
    with pytest.raises(RequestError) as caught:
        assemble(history, input)
    place = input.index(make_output("x"))
    assert caught.value.payload == ErrorPayload(
        message="No function call with call_id 'x' comes before this output. "
        "Send the function_call item first, or continue the response that made the call.",
        type="invalid_request",
        param=f"input[{place}].call_id",
        code="function_call_not_found",
    )


def test_parallel_calls_may_be_answered_in_any_order():
    check_outputs_match_calls([make_call("x"), make_call("y")], [make_output("y"), make_output("x")])


def make_output_of(call_id: str, output: str) -> FunctionCallOutput:
    """Make an output that says something."""
    return FunctionCallOutput(call_id=call_id, output=output)


@pytest.mark.parametrize("history", [[], [make_call("x")], [make_call("x"), make_output_of("x", "1")]])
def test_a_second_different_output_of_one_call_is_rejected(history: list[Item]):
    conversation: list[Item] = [make_call("x"), make_output_of("x", "1"), user_message("Hi"), make_output_of("x", "2")]
    input = conversation[len(history) :]
    with pytest.raises(RequestError) as caught:
        assemble(history, input)
    assert caught.value.payload == ErrorPayload(
        message="The call 'x' has another output already. Send one for each call.",
        type="invalid_request",
        param=f"input[{len(input) - 1}].call_id",
        code="invalid_value",
    )


@pytest.mark.parametrize(
    "input",
    [
        [make_call("x"), make_output_of("x", "1"), make_output_of("x", "1")],
        [make_call("x"), make_call("x"), make_output_of("x", "1"), make_output_of("x", "2")],
        [make_call("x"), make_output_of("x", "1"), user_message("Hi"), make_call("x"), make_output_of("x", "2")],
    ],
)
def test_an_output_may_be_repeated_and_a_call_id_reused(input: list[Item]):
    for length in range(len(input)):
        assert assemble(input[:length], input[length:]) == input


def test_a_chain_that_holds_two_outputs_for_a_call_can_be_continued():
    history: list[Item] = [make_call("x"), make_output_of("x", "1"), make_output_of("x", "2"), make_call("y")]
    assert assemble(history, [make_output("y")]) == [*history, make_output("y")]


def make_custom_call(call_id: str, status: str = "completed") -> ExtensionItem:
    """Make a call of a custom tool."""
    return ExtensionItem(type=CUSTOM_TOOL_CALL, status=status, extra={"call_id": call_id, "name": "c", "input": "+1"})


def make_custom_output(call_id: str, output: str = "done") -> ExtensionItem:
    """Make the output of a custom tool."""
    return ExtensionItem(type=CUSTOM_TOOL_CALL_OUTPUT, extra={"call_id": call_id, "output": output})


@pytest.mark.parametrize(
    ("history", "input"),
    [
        ([], [make_custom_output("x")]),
        ([make_custom_call("y")], [user_message("Hi"), make_custom_output("x")]),
        ([], [make_custom_output("x"), make_custom_call("x")]),
        ([make_call("x")], [make_custom_output("x")]),
    ],
)
def test_a_custom_tool_output_without_its_call_is_rejected(history: list[Item], input: list[Item]):
    with pytest.raises(RequestError) as caught:
        assemble(history, input)
    assert caught.value.payload == ErrorPayload(
        message="No custom tool call with call_id 'x' comes before this output. "
        "Send the custom_tool_call item first, or continue the response that made the call.",
        type="invalid_request",
        param=f"input[{input.index(make_custom_output('x'))}].call_id",
        code="function_call_not_found",
    )


def test_custom_tools_and_functions_may_be_answered_in_any_order():
    history: list[Item] = [make_call("x"), make_custom_call("y")]
    input: list[Item] = [make_custom_output("y"), make_output("x")]
    assert assemble(history, input) == [*history, *input]
    assert find_unpaired_call_ids([*history, *input]) == set()


def estimate(*items: Item) -> int:
    """Return the estimate for some items."""
    return estimate_items(items)


LONG = "word " * 40


@pytest.mark.parametrize("truncation", ["auto", "disabled"])
@pytest.mark.parametrize("window", [None, 10_000])
def test_a_conversation_that_fits_is_unchanged(truncation: str, window: int | None):
    items: list[Item] = [user_message(LONG), user_message(LONG)]
    assert fit_to_window(items, window, truncation) == items  # pyright: ignore[reportArgumentType]


def test_a_conversation_that_just_fits_is_unchanged():
    items: list[Item] = [user_message(LONG), user_message(LONG)]
    assert fit_to_window(items, estimate(*items), "disabled") == items


def test_a_conversation_that_does_not_fit_is_rejected_unless_truncation_is_auto():
    items: list[Item] = [user_message(LONG), user_message(LONG)]
    with pytest.raises(RequestError) as caught:
        fit_to_window(items, 100, "disabled")
    assert caught.value.payload == ErrorPayload(
        message=f"The input is about {estimate(*items)} tokens; this model reads at most 100. "
        "Shorten it, or set truncation to 'auto'.",
        type="invalid_request",
        param="input",
        code="context_length_exceeded",
    )


def test_the_oldest_items_are_cut_first():
    items: list[Item] = [user_message(f"{n} {LONG}") for n in range(4)]
    assert fit_to_window(items, estimate(*items[2:]), "auto") == items[2:]


def test_system_and_developer_messages_stay():
    system, developer = (make_text_message("Be kind.", "system"), make_text_message("Be brief.", "developer"))
    items: list[Item] = [system, user_message(LONG), developer, user_message("Hi")]
    assert fit_to_window(items, estimate(system, developer, user_message("Hi")), "auto") == [
        system,
        developer,
        user_message("Hi"),
    ]


def test_a_call_is_never_separated_from_its_output():
    items: list[Item] = [
        user_message(LONG),
        make_call("x"),
        make_call("y"),
        make_output("x"),
        make_output("y"),
        user_message("Hi"),
    ]
    assert fit_to_window(items, estimate(*items[1:]), "auto") == items[1:]
    assert fit_to_window(items, estimate(*items[1:]) - 1, "auto") == items[5:]


def test_items_between_a_call_and_its_output_stay_with_them():
    items: list[Item] = [make_call("x"), user_message(LONG), make_output("x"), user_message("Hi")]
    assert fit_to_window(items, estimate(*items[1:]), "auto") == items[3:]


def test_a_call_without_an_output_does_not_prevent_cuts_after_it():
    items: list[Item] = [make_call("x"), user_message(LONG), user_message(LONG), user_message("Hi")]
    assert fit_to_window(items, estimate(*items[2:]), "auto") == items[2:]


def test_reasoning_is_never_separated_from_the_item_after_it():
    items: list[Item] = [make_reasoning(LONG), make_reasoning("so"), make_message("m", "Hello"), user_message("Hi")]
    assert fit_to_window(items, estimate(*items[1:]), "auto") == items[3:]


def test_reasoning_before_a_call_stays_with_the_call_and_its_output():
    items: list[Item] = [make_reasoning(LONG), make_call("x"), make_output("x"), user_message("Hi")]
    assert fit_to_window(items, estimate(*items[1:]), "auto") == items[3:]


def test_the_last_span_is_never_cut():
    items: list[Item] = [user_message("Hi"), user_message(LONG)]
    with pytest.raises(RequestError) as caught:
        fit_to_window(items, 10, "auto")
    assert caught.value.payload.message == (
        f"The input is about {estimate(user_message(LONG))} tokens; this model reads at most 10. Shorten it."
    )


def repair_all(*items: Item) -> list[Item]:
    """Repair a whole conversation."""
    return repair_unpaired(items, find_unpaired_call_ids(items))


def test_a_conversation_in_which_every_call_has_an_output_is_unchanged():
    items: list[Item] = [user_message("Hi"), make_call("x"), make_call("y"), make_output("y"), make_output("x")]
    assert find_unpaired_call_ids(items) == set()
    assert repair_all(*items) == items


def test_a_call_without_an_output_gets_one_that_says_so():
    nothing = FunctionCallOutput(call_id="y", output=MISSING_OUTPUT_TEXT, status="incomplete")
    items: list[Item] = [make_call("x"), make_call("y"), make_output("x"), user_message("Well?")]
    assert find_unpaired_call_ids(items) == {"y"}
    assert repair_all(*items) == [make_call("x"), make_call("y"), nothing, make_output("x"), user_message("Well?")]


def test_an_incomplete_call_without_an_output_is_dropped():
    cut = FunctionCall(call_id="x", name="f", arguments='{"a', status="incomplete")
    assert repair_all(user_message("Hi"), cut, user_message("Well?")) == [user_message("Hi"), user_message("Well?")]


def test_an_output_without_its_call_is_dropped_by_repair():
    assert repair_all(user_message("Hi"), make_output("x"), user_message("Well?")) == [
        user_message("Hi"),
        user_message("Well?"),
    ]


def test_a_custom_tool_call_is_repaired_like_a_function_call():
    items: list[Item] = [
        make_call("x"),
        make_custom_call("y"),
        make_output("x"),
        make_custom_output("z"),
        user_message("Well?"),
    ]
    assert find_unpaired_call_ids(items) == {"y", "z"}
    assert repair_all(*items) == [
        make_call("x"),
        make_custom_call("y"),
        make_custom_output("y", MISSING_OUTPUT_TEXT),
        make_output("x"),
        user_message("Well?"),
    ]
    assert repair_all(make_custom_call("x", "incomplete"), user_message("Well?")) == [user_message("Well?")]

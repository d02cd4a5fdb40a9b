import pytest

from antiphon.core import tokens
from antiphon.core.content import InputText, ReasoningText
from antiphon.core.context import NO_OUTPUT, assemble, check_pairs, fit, repair, unpaired
from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.items import (
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    Reasoning,
    Role,
    user,
)
from tests.core.making import message


def say(text: str, role: Role = "user") -> Message:
    """Make a message of anybody's."""
    return Message(role=role, content=[InputText(text=text)])


def asked(call_id: str) -> FunctionCall:
    """Make a call."""
    return FunctionCall(call_id=call_id, name="f", arguments="{}")


def answered(call_id: str) -> FunctionCallOutput:
    """Make the output of a call."""
    return FunctionCallOutput(call_id=call_id, output="42")


def thought(text: str) -> Reasoning:
    """Make a reasoning item."""
    return Reasoning(content=[ReasoningText(text=text)])


# --- putting a conversation together ---


def test_what_was_said_before_comes_before_what_is_said_now():
    history: list[Item] = [user("Hi"), message("msg_1", "Hello"), asked("x")]
    said: list[Item] = [answered("x"), user("Bye")]
    assert assemble(history, said) == [*history, *said]


def test_no_history_and_no_input_are_no_context():
    assert assemble([], []) == []


def test_a_reference_is_replaced_by_the_item_of_the_history():
    hello = message("msg_1", "Hello")
    assert assemble([hello], [ItemReference(id="msg_1")]) == [hello, hello]


def test_a_reference_is_replaced_by_an_item_that_is_stored_elsewhere():
    stored = {"msg_7": message("msg_7", "Hello")}
    context = assemble([], [ItemReference(id="msg_7"), user("Hi")], stored.get)
    assert context == [stored["msg_7"], user("Hi")]


@pytest.mark.parametrize("find", [None, {}.get])
def test_a_reference_to_nothing_is_refused(find: object):
    with pytest.raises(RequestError) as caught:
        assemble([], [user("Hi"), ItemReference(id="msg_7")], find)  # pyright: ignore[reportArgumentType]
    assert caught.value.payload == ErrorPayload(
        message="Item 'msg_7' not found. Send the item itself, or the id of a stored one.",
        type="invalid_request",
        param="input[1].id",
        code="item_not_found",
    )


def test_a_reference_to_a_call_pairs_with_its_output():
    call = asked("x")
    assert assemble([], [ItemReference(id="fc_1"), answered("x")], {"fc_1": call}.get) == [
        call,
        answered("x"),
    ]


@pytest.mark.parametrize(
    ("history", "input"),
    [
        ([], [answered("x")]),
        ([asked("y")], [user("Hi"), answered("x")]),
        ([], [answered("x"), asked("x")]),
    ],
)
def test_an_output_without_its_call_is_refused_by_name(history: list[Item], input: list[Item]):
    with pytest.raises(RequestError) as caught:
        assemble(history, input)
    place = input.index(answered("x"))
    assert caught.value.payload == ErrorPayload(
        message="No function call with call_id 'x' comes before this output. "
        "Send the function_call item first, or continue the response that made the call.",
        type="invalid_request",
        param=f"input[{place}].call_id",
        code="function_call_not_found",
    )


def test_parallel_calls_may_be_answered_in_any_order():
    check_pairs([asked("x"), asked("y")], [answered("y"), answered("x")])


def gave(call_id: str, output: str) -> FunctionCallOutput:
    """Make an output that says something."""
    return FunctionCallOutput(call_id=call_id, output=output)


@pytest.mark.parametrize("history", [[], [asked("x")], [asked("x"), gave("x", "1")]])
def test_a_second_output_that_says_something_else_is_refused_by_name(history: list[Item]):
    conversation: list[Item] = [asked("x"), gave("x", "1"), user("Hi"), gave("x", "2")]
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
    "said",
    [
        [asked("x"), gave("x", "1"), gave("x", "1")],
        [asked("x"), asked("x"), gave("x", "1"), gave("x", "2")],
        [asked("x"), gave("x", "1"), user("Hi"), asked("x"), gave("x", "2")],
    ],
)
def test_an_output_may_be_repeated_and_an_id_used_again(said: list[Item]):
    for length in range(len(said)):
        assert assemble(said[:length], said[length:]) == said


def test_a_chain_that_holds_two_outputs_for_a_call_can_be_continued():
    history: list[Item] = [asked("x"), gave("x", "1"), gave("x", "2"), asked("y")]
    assert assemble(history, [answered("y")]) == [*history, answered("y")]


def custom(call_id: str, status: str = "completed") -> ExtensionItem:
    """Make a call of a custom tool."""
    return ExtensionItem(
        type=CUSTOM_CALL, status=status, extra={"call_id": call_id, "name": "c", "input": "+1"}
    )


def done(call_id: str, output: str = "done") -> ExtensionItem:
    """Make the output of a custom tool."""
    return ExtensionItem(type=CUSTOM_OUTPUT, extra={"call_id": call_id, "output": output})


@pytest.mark.parametrize(
    ("history", "input"),
    [
        ([], [done("x")]),
        ([custom("y")], [user("Hi"), done("x")]),
        ([], [done("x"), custom("x")]),
        ([asked("x")], [done("x")]),
    ],
)
def test_a_custom_tools_output_without_its_call_is_refused_as_a_functions(
    history: list[Item], input: list[Item]
):
    with pytest.raises(RequestError) as caught:
        assemble(history, input)
    assert caught.value.payload == ErrorPayload(
        message="No custom tool call with call_id 'x' comes before this output. "
        "Send the custom_tool_call item first, or continue the response that made the call.",
        type="invalid_request",
        param=f"input[{input.index(done('x'))}].call_id",
        code="function_call_not_found",
    )


def test_custom_tools_and_functions_may_be_answered_in_any_order():
    history: list[Item] = [asked("x"), custom("y")]
    said: list[Item] = [done("y"), answered("x")]
    assert assemble(history, said) == [*history, *said]
    assert unpaired([*history, *said]) == set()


# --- making it fit ---


def size(*items: Item) -> int:
    """Return the estimate for some items."""
    return tokens.of_items(items)


LONG = "word " * 40


@pytest.mark.parametrize("truncation", ["auto", "disabled"])
@pytest.mark.parametrize("window", [None, 10_000])
def test_what_fits_is_left_alone(truncation: str, window: int | None):
    items: list[Item] = [user(LONG), user(LONG)]
    assert fit(items, window, truncation) == items  # pyright: ignore[reportArgumentType]


def test_what_just_fits_is_left_alone():
    items: list[Item] = [user(LONG), user(LONG)]
    assert fit(items, size(*items), "disabled") == items


def test_what_does_not_fit_is_refused_unless_it_may_be_cut():
    items: list[Item] = [user(LONG), user(LONG)]
    with pytest.raises(RequestError) as caught:
        fit(items, 100, "disabled")
    assert caught.value.payload == ErrorPayload(
        message=f"The input is about {size(*items)} tokens; this model reads at most 100. "
        "Shorten it, or set truncation to 'auto'.",
        type="invalid_request",
        param="input",
        code="context_length_exceeded",
    )


def test_the_oldest_is_cut_first():
    items: list[Item] = [user(f"{n} {LONG}") for n in range(4)]
    assert fit(items, size(*items[2:]), "auto") == items[2:]


def test_system_and_developer_messages_stay():
    system, developer = say("Be kind.", "system"), say("Be brief.", "developer")
    items: list[Item] = [system, user(LONG), developer, user("Hi")]
    assert fit(items, size(system, developer, user("Hi")), "auto") == [
        system,
        developer,
        user("Hi"),
    ]


def test_a_call_is_never_parted_from_its_output():
    items: list[Item] = [
        user(LONG),
        asked("x"),
        asked("y"),
        answered("x"),
        answered("y"),
        user("Hi"),
    ]
    assert fit(items, size(*items[1:]), "auto") == items[1:]
    assert fit(items, size(*items[1:]) - 1, "auto") == items[5:]


def test_what_was_said_between_a_call_and_its_output_stays_with_them():
    items: list[Item] = [asked("x"), user(LONG), answered("x"), user("Hi")]
    assert fit(items, size(*items[1:]), "auto") == items[3:]


def test_a_call_that_was_never_answered_does_not_hold_the_rest_together():
    items: list[Item] = [asked("x"), user(LONG), user(LONG), user("Hi")]
    assert fit(items, size(*items[2:]), "auto") == items[2:]


def test_reasoning_is_never_parted_from_what_it_led_to():
    items: list[Item] = [thought(LONG), thought("so"), message("m", "Hello"), user("Hi")]
    assert fit(items, size(*items[1:]), "auto") == items[3:]


def test_reasoning_before_a_call_stays_with_the_call_and_its_output():
    items: list[Item] = [thought(LONG), asked("x"), answered("x"), user("Hi")]
    assert fit(items, size(*items[1:]), "auto") == items[3:]


def test_the_last_stretch_is_never_cut():
    items: list[Item] = [user("Hi"), user(LONG)]
    with pytest.raises(RequestError) as caught:
        fit(items, 10, "auto")
    assert caught.value.payload.message == (
        f"The input is about {size(user(LONG))} tokens; this model reads at most 10. Shorten it."
    )


# --- calls that were never answered ---


def paired(*items: Item) -> list[Item]:
    """Repair a whole conversation."""
    return repair(items, unpaired(items))


def test_a_conversation_whose_calls_are_answered_is_left_as_it_is():
    items: list[Item] = [user("Hi"), asked("x"), asked("y"), answered("y"), answered("x")]
    assert unpaired(items) == set()
    assert paired(*items) == items


def test_a_call_that_was_never_answered_gets_an_output_that_says_so():
    nothing = FunctionCallOutput(call_id="y", output=NO_OUTPUT, status="incomplete")
    items: list[Item] = [asked("x"), asked("y"), answered("x"), user("Well?")]
    assert unpaired(items) == {"y"}
    assert paired(*items) == [asked("x"), asked("y"), nothing, answered("x"), user("Well?")]


def test_a_call_that_was_cut_short_is_left_out():
    cut = FunctionCall(call_id="x", name="f", arguments='{"a', status="incomplete")
    assert paired(user("Hi"), cut, user("Well?")) == [user("Hi"), user("Well?")]


def test_an_output_whose_call_is_gone_is_left_out():
    assert paired(user("Hi"), answered("x"), user("Well?")) == [user("Hi"), user("Well?")]


def test_the_call_of_a_custom_tool_is_repaired_as_a_functions():
    items: list[Item] = [asked("x"), custom("y"), answered("x"), done("z"), user("Well?")]
    assert unpaired(items) == {"y", "z"}
    assert paired(*items) == [
        asked("x"),
        custom("y"),
        done("y", NO_OUTPUT),
        answered("x"),
        user("Well?"),
    ]
    assert paired(custom("x", "incomplete"), user("Well?")) == [user("Well?")]

import pytest
from msgspec.structs import replace

from antiphon.protocol import items, parts
from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import ResponseCompleted
from antiphon.protocol.fold import fold
from antiphon.protocol.items import (
    Compaction,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    SummaryText,
)
from antiphon.protocol.parts import Call, Finish, Text, Whole
from antiphon.protocol.response import ResponseWarning
from tests.protocol.builders import (
    CITATION,
    LOGPROB,
    arguments_delta,
    call_end_events,
    completed_event,
    event_types,
    final_response,
    item_added,
    item_done,
    make_call,
    make_final_response,
    make_message,
    make_synth,
    message_events,
    number_events,
    reasoning_part_events,
    start_events,
    summary_part_events,
    synthesize,
    text_part_events,
)


def test_a_surrogate_pair_split_over_two_deltas_is_joined():
    assert synthesize(Text("a\ud83c"), Text("\udfb5b")) == number_events(
        start_events(), message_events("msg_0", 0, "a", "🎵b"), completed_event(make_message("msg_0", "a🎵b"))
    )


def test_a_delta_of_half_a_surrogate_pair_is_held_back():
    assert synthesize(Text("\ud83c"), Text("\udfb5")) == number_events(
        start_events(), message_events("msg_0", 0, "🎵"), completed_event(make_message("msg_0", "🎵"))
    )


def test_half_a_surrogate_pair_becomes_a_replacement_character_at_the_end():
    assert synthesize(Text("a\ud83c")) == number_events(
        start_events(), message_events("msg_0", 0, "a", "\ufffd"), completed_event(make_message("msg_0", "a\ufffd"))
    )


def test_surrogates_of_different_parts_are_not_joined():
    assert synthesize(Text("\ud83c", part=0), Text("\udfb5", part=1)) == number_events(
        start_events(),
        item_added(0, make_message("msg_0", status="in_progress")),
        text_part_events("msg_0", 0, 0, "\ufffd"),
        text_part_events("msg_0", 0, 1, "\ufffd"),
        item_done(0, make_message("msg_0", "\ufffd", "\ufffd")),
        completed_event(make_message("msg_0", "\ufffd", "\ufffd")),
    )


def test_a_surrogate_pair_in_arguments_is_joined():
    whole = make_call("fc_0", "f", '{"a":"🎵"}', "c")
    assert synthesize(Call(0, "f", '{"a":"\ud83c', "c"), Call(0, arguments='\udfb5"}')) == number_events(
        start_events(),
        item_added(0, make_call("fc_0", "f", "", "c", "in_progress")),
        arguments_delta("fc_0", 0, '{"a":"'),
        arguments_delta("fc_0", 0, '🎵"}'),
        call_end_events(0, whole),
        completed_event(whole),
    )


def test_the_logprobs_of_half_a_surrogate_pair_are_kept():
    last = synthesize(Text("\ud83c", logprobs=[LOGPROB]), Text("\udfb5", logprobs=[LOGPROB]))[-1]
    weighed = OutputText(text="🎵", logprobs=[LOGPROB, LOGPROB])
    assert isinstance(last, ResponseCompleted)
    assert last.response.output == [replace(make_message("msg_0"), content=[weighed])]


def test_reasoning_has_raw_text_a_summary_and_encrypted_content():
    whole = Reasoning(
        id="rs_0",
        content=[ReasoningText(text="Hmm, so")],
        summary=[SummaryText(text="Thought.")],
        encrypted_content="sealed",
    )
    events = synthesize(
        parts.Reasoning("Hmm, "),
        parts.Reasoning("so"),
        parts.Reasoning(summary="Thought."),
        parts.Reasoning(encrypted_content="sealed"),
        Text("Hi"),
    )
    assert events == number_events(
        start_events(),
        item_added(0, Reasoning(id="rs_0")),
        reasoning_part_events("rs_0", 0, 0, "Hmm, ", "so"),
        summary_part_events("rs_0", 0, 0, "Thought."),
        item_done(0, whole),
        message_events("msg_0", 1, "Hi"),
        completed_event(whole, make_message("msg_0", "Hi")),
    )


def test_encrypted_content_alone_is_a_reasoning_item():
    whole = Reasoning(id="rs_0", encrypted_content="sealed")
    assert synthesize(parts.Reasoning(encrypted_content="sealed")) == number_events(
        start_events(), item_added(0, Reasoning(id="rs_0")), item_done(0, whole), completed_event(whole)
    )


def test_a_summary_may_have_several_parts():
    whole = Reasoning(id="rs_0", summary=[SummaryText(text="One."), SummaryText(text="Two.")])
    events = synthesize(parts.Reasoning(summary="One."), parts.Reasoning(summary="Two.", part=1))
    assert events == number_events(
        start_events(),
        item_added(0, Reasoning(id="rs_0")),
        summary_part_events("rs_0", 0, 0, "One."),
        summary_part_events("rs_0", 0, 1, "Two."),
        item_done(0, whole),
        completed_event(whole),
    )


def test_reasoning_text_and_a_call_in_one_turn_are_three_items_in_order():
    thought = Reasoning(id="rs_0", content=[ReasoningText(text="Hmm")])
    asked = make_call("fc_0", "f", '{"a":1}', "c")
    assert synthesize(parts.Reasoning("Hmm"), Text("Hi"), Call(0, "f", '{"a":1}', "c")) == number_events(
        start_events(),
        item_added(0, Reasoning(id="rs_0")),
        reasoning_part_events("rs_0", 0, 0, "Hmm"),
        item_done(0, thought),
        message_events("msg_0", 1, "Hi"),
        item_added(2, make_call("fc_0", "f", "", "c", "in_progress")),
        arguments_delta("fc_0", 2, '{"a":1}'),
        call_end_events(2, asked),
        completed_event(thought, make_message("msg_0", "Hi"), asked),
    )


def test_empty_reasoning_is_no_item():
    assert synthesize(parts.Reasoning(""), Text("a")) == synthesize(Text("a"))


def test_interleaved_calls_keep_their_own_arguments_and_close_in_order():
    first, second = make_call("fc_0", "f", '{"a":1}', "x"), make_call("fc_1", "g", '{"b":2}', "y")
    events = synthesize(
        Call(0, "f", '{"a"', "x"), Call(1, "g", '{"b"', "y"), Call(0, arguments=":1}"), Call(1, arguments=":2}")
    )
    assert events == number_events(
        start_events(),
        item_added(0, replace(first, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, '{"a"'),
        item_added(1, replace(second, status="in_progress", arguments="")),
        arguments_delta("fc_1", 1, '{"b"'),
        arguments_delta("fc_0", 0, ":1}"),
        arguments_delta("fc_1", 1, ":2}"),
        call_end_events(0, first),
        call_end_events(1, second),
        completed_event(first, second),
    )


def test_three_calls_at_once_are_three_items():
    calls = [make_call(f"fc_{n}", "f", f'{{"n":{n}}}', f"c{n}") for n in range(3)]
    events = synthesize(*(Call(n, "f", f'{{"n":{n}}}', f"c{n}") for n in range(3)))
    assert events == number_events(
        start_events(),
        *(
            [
                item_added(n, replace(item, status="in_progress", arguments="")),
                arguments_delta(f"fc_{n}", n, f'{{"n":{n}}}'),
                *call_end_events(n, item),
            ]
            for n, item in enumerate(calls)
        ),
        completed_event(*calls),
    )


def test_a_new_call_id_on_a_known_key_is_a_new_call():
    first, second = make_call("fc_0", "f", '{"a":', "x"), make_call("fc_1", "f", '{"a":2}', "y")
    assert synthesize(Call(0, "f", '{"a":', "x"), Call(0, "f", '{"a":2}', "y")) == number_events(
        start_events(),
        item_added(0, replace(first, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, '{"a":'),
        call_end_events(0, first),
        item_added(1, replace(second, status="in_progress", arguments="")),
        arguments_delta("fc_1", 1, '{"a":2}'),
        call_end_events(1, second),
        completed_event(first, second),
    )


def test_a_repeated_call_id_and_name_is_the_same_call():
    events = synthesize(Call(0, "f", "{", "x"), Call(0, "f", "}", "x"))
    assert final_response(events) == make_final_response(make_call("fc_0", "f", "{}", "x"))


def test_a_tool_index_that_starts_at_one_leaves_no_gap():
    whole = make_call("fc_0", "f", "{}", "x")
    assert synthesize(Call(1, "f", "{}", "x")) == number_events(
        start_events(),
        item_added(0, make_call("fc_0", "f", "", "x", "in_progress")),
        arguments_delta("fc_0", 0, "{}"),
        call_end_events(0, whole),
        completed_event(whole),
    )


def test_a_call_without_arguments_has_an_empty_object():
    assert synthesize(Call(0, "f", call_id="x")) == synthesize(Call(0, "f", "{}", "x"))


def test_a_call_without_an_id_gets_one():
    assert synthesize(Call(0, "f", "{}")) == synthesize(Call(0, "f", "{}", "call_0"))


def test_a_call_waits_for_its_name():
    events = synthesize(Call(0, arguments='{"a"', call_id="x"), Call(0, "f", ":1}"))
    assert events == synthesize(Call(0, "f", '{"a":1}', "x"))


def test_late_arguments_of_a_closed_call_are_not_given_to_the_next():
    late = synthesize(Call(0, "f", "{}", "x"), Text("Hi"), Call(0, arguments="!"), Call(0, "g", "{}", "y"))
    response = fold(late)
    assert [item.type for item in response.output] == ["function_call", "message", "function_call"]
    assert response.output[2] == make_call("fc_1", "g", "{}", "y")
    assert [warning.code for warning in response.warnings or []] == ["nameless_call"]


def test_arguments_without_a_name_are_dropped_with_a_warning():
    warning = ResponseWarning(
        code="nameless_call", message="Arguments arrived that belong to no call; they were left out."
    )
    assert synthesize(Call(0, arguments='{"a":1}'), Text("Hi")) == number_events(
        start_events(),
        message_events("msg_0", 0, "Hi"),
        completed_event(make_message("msg_0", "Hi"), warnings=[warning]),
    )


@pytest.mark.parametrize("repeated", ["x", "x" * 65])
def test_a_call_id_that_is_taken_or_too_long_is_replaced(repeated: str):
    events = synthesize(Call(0, "f", "{}", "x"), Call(1, "f", "{}", repeated))
    assert final_response(events) == make_final_response(
        make_call("fc_0", "f", "{}", "x"), make_call("fc_1", "f", "{}", "call_0")
    )


def test_text_after_whole_calls_closes_them():
    asked = make_call("fc_0", "f", "{}", "x")
    assert synthesize(Call(0, "f", "{}", "x"), Text("Hi")) == number_events(
        start_events(),
        item_added(0, replace(asked, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, "{}"),
        call_end_events(0, asked),
        message_events("msg_0", 1, "Hi"),
        completed_event(asked, make_message("msg_0", "Hi")),
    )


def test_text_between_two_pieces_of_a_call_is_done_after_the_call():
    asked = make_call("fc_0", "f", '{"a":1}', "x")
    events = synthesize(Call(0, "f", '{"a"', "x"), Text("Hi"), Call(0, arguments=":1}"), Text("!"))
    opened, closed = (text_part_events("msg_0", 1, 0, "Hi", "!")[:2], text_part_events("msg_0", 1, 0, "Hi", "!"))
    assert events == number_events(
        start_events(),
        item_added(0, replace(asked, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, '{"a"'),
        item_added(1, make_message("msg_0", status="in_progress")),
        opened,
        arguments_delta("fc_0", 0, ":1}"),
        closed[2],
        call_end_events(0, asked),
        closed[3:],
        item_done(1, make_message("msg_0", "Hi!")),
        completed_event(asked, make_message("msg_0", "Hi!")),
    )


def test_a_complete_call_waits_for_the_one_before_it():
    first, second = make_call("fc_0", "f", '{"a":1}', "x"), make_call("fc_1", "g", "{}", "y")
    events = synthesize(
        Call(0, "f", '{"a"', "x"), Call(1, "g", "{}", "y", complete=True), Call(0, arguments=":1}", complete=True)
    )
    assert events == number_events(
        start_events(),
        item_added(0, replace(first, status="in_progress", arguments="")),
        arguments_delta("fc_0", 0, '{"a"'),
        item_added(1, replace(second, status="in_progress", arguments="")),
        arguments_delta("fc_1", 1, "{}"),
        arguments_delta("fc_0", 0, ":1}"),
        call_end_events(0, first),
        call_end_events(1, second),
        completed_event(first, second),
    )


def test_a_complete_call_is_closed_at_once():
    synth = make_synth()
    synth.start()
    assert event_types(synth.feed(Call(0, "f", "{}", "x", complete=True))) == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]


WHOLE_ITEMS: dict[str, tuple[Item, Item]] = {
    "a message": (
        Message(
            id="theirs",
            status="completed",
            role="assistant",
            content=[
                OutputText(text="Hi", annotations=[CITATION], logprobs=[LOGPROB]),
                items.RefusalContent(refusal="No."),
            ],
            phase="final_answer",
        ),
        Message(
            id="msg_0",
            status="completed",
            role="assistant",
            content=[
                OutputText(text="Hi", annotations=[CITATION], logprobs=[LOGPROB]),
                items.RefusalContent(refusal="No."),
            ],
            phase="final_answer",
        ),
    ),
    "reasoning": (
        Reasoning(
            id="theirs",
            content=[ReasoningText(text="Hmm"), ReasoningText(text="so")],
            summary=[SummaryText(text="One."), SummaryText(text="Two.")],
            encrypted_content="sealed",
        ),
        Reasoning(
            id="rs_0",
            content=[ReasoningText(text="Hmm"), ReasoningText(text="so")],
            summary=[SummaryText(text="One."), SummaryText(text="Two.")],
            encrypted_content="sealed",
        ),
    ),
    "a call": (
        FunctionCall(id="theirs", call_id="x", name="f", arguments='{"a":1}'),
        make_call("fc_0", "f", '{"a":1}', "x"),
    ),
    "an output": (
        FunctionCallOutput(call_id="x", output="42"),
        FunctionCallOutput(id="fco_0", call_id="x", output="42", status="completed"),
    ),
    "a compaction": (
        Compaction(id="theirs", encrypted_content="sealed"),
        Compaction(id="cmp_0", encrypted_content="sealed"),
    ),
    "an extension's": (
        ExtensionItem(type="acme:search_call", status="searching", extra={"query": "q"}),
        ExtensionItem(type="acme:search_call", id="item_0", status="completed", extra={"query": "q"}),
    ),
    "a failed extension's": (
        ExtensionItem(type="acme:search_call", id="theirs", status="failed"),
        ExtensionItem(type="acme:search_call", id="item_0", status="failed"),
    ),
}


@pytest.mark.parametrize("name", WHOLE_ITEMS)
def test_a_whole_item_keeps_everything_but_its_id(name: str):
    theirs, ours = WHOLE_ITEMS[name]
    last = synthesize(Whole(theirs))[-1]
    assert last == ResponseCompleted(sequence_number=last.sequence_number, response=make_final_response(ours))


def test_the_content_of_a_whole_message_becomes_output_text_even_if_it_is_empty():
    theirs = Message(role="assistant", content=[items.TextContent(text="Hi"), OutputText(text="")])
    (message,) = final_response(synthesize(Whole(theirs))).output
    assert isinstance(message, Message)
    assert message.content == [OutputText(text="Hi"), OutputText(text="")]


@pytest.mark.parametrize("name", WHOLE_ITEMS)
@pytest.mark.parametrize("reason", ["length", "cancelled"])
def test_a_whole_item_stays_completed_in_an_incomplete_response(name: str, reason: parts.Reason):
    theirs, ours = WHOLE_ITEMS[name]
    output = final_response(synthesize(Whole(theirs), Finish(reason))).output
    assert output == [ours]


UNFINISHED: list[Item] = [
    make_message("theirs", "Hi", status="incomplete"),
    make_call("theirs", "f", '{"a"', "x", "incomplete"),
    FunctionCallOutput(call_id="x", output="4", status="incomplete"),
    ExtensionItem(type="acme:search_call", status="incomplete"),
]


@pytest.mark.parametrize("item", UNFINISHED, ids=lambda item: item.type)
@pytest.mark.parametrize(("reason", "status"), [("stop", "completed"), ("length", "incomplete")])
def test_an_unfinished_whole_item_takes_the_status_of_the_end(
    item: Message | FunctionCall, reason: parts.Reason, status: str
):
    output = final_response(synthesize(Whole(item), Finish(reason))).output
    [shown] = output
    assert shown == replace(item, id=shown.id, status=status)


def test_a_whole_item_closes_the_items_before_it():
    output = FunctionCallOutput(id="fco_0", call_id="x", output="42", status="completed")
    assert synthesize(Text("Hi"), Whole(FunctionCallOutput(call_id="x", output="42"))) == number_events(
        start_events(),
        message_events("msg_0", 0, "Hi"),
        item_added(1, replace(output, status="in_progress")),
        item_done(1, output),
        completed_event(make_message("msg_0", "Hi"), output),
    )


def test_an_item_reference_is_no_output():
    synth = make_synth()
    synth.start()
    with pytest.raises(LocalProtocolError, match="an item reference is input only"):
        synth.feed(Whole(ItemReference(id="msg_0")))


def test_a_lone_surrogate_in_a_name_is_replaced():
    whole = make_call("fc_0", "f\ufffd", "{}", "x\ufffd")
    assert final_response(synthesize(Call(0, "f\ud83d", "{}", "x\ud83d"))) == make_final_response(whole)

"""The calls of an agent's own tools, and their outputs, as parts."""

from msgspec.structs import replace

from antiphon.agents.part_reader import PartReader
from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputText, Item
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionTool

CALL = parts.Call(0, "search", "{}", "c1")
OUTPUT = FunctionCallOutput(call_id="c1", output="found")
NO_OUTPUT = parts.Warn("unanswered_call", "The agent called its own tool 'search', and gave no output for the call.")
NO_CALL = parts.Warn(
    "unknown_call", "The agent gave an output for the call 'c1', which waits for none; it was left out."
)


def read_all(*values: object, history: list[Item] | None = None, offered: str = "weather") -> list[Part]:
    """Return the parts of an answer to a client that offers one function."""
    request = replace(Request.from_message("a", "hello"), tools=[FunctionTool(name=offered)])
    reader = PartReader(Turn(request=request, input=request.input, history=history or []))
    read = [part for value in values if (part := reader.read(value))]
    return [*read, *reader.end()]


def test_a_call_with_its_output_passes() -> None:
    assert read_all(CALL, OUTPUT, "done") == [CALL, parts.Whole(OUTPUT), parts.Text("done")]


def test_a_call_in_pieces_has_one_output() -> None:
    pieces = [parts.Call("k", call_id="c1"), parts.Call("k", "search", "{"), parts.Call("k", "search", "}", "c1")]
    assert read_all(*pieces, OUTPUT) == [*pieces, parts.Whole(OUTPUT)]


def test_an_own_call_without_output_gives_a_warning_and_a_client_call_none() -> None:
    assert read_all(CALL) == [CALL, NO_OUTPUT]
    assert read_all(CALL, offered="search") == [CALL]
    item = FunctionCall(call_id="c1", name="search", arguments="{}")
    assert read_all(item, item, OUTPUT) == [parts.Whole(item), parts.Whole(item), parts.Whole(OUTPUT), NO_OUTPUT]


def test_an_agent_may_end_with_calls_that_wait_for_their_outputs() -> None:
    paused = parts.Finish("tool_calls")
    assert read_all(CALL, paused) == [CALL, paused]
    assert read_all(CALL, parts.Finish("stop")) == [CALL, parts.Finish("stop"), NO_OUTPUT]


def test_a_new_id_on_a_known_key_is_a_call_of_its_own() -> None:
    second = replace(CALL, call_id="c2")
    assert read_all(CALL, second, OUTPUT) == [CALL, second, parts.Whole(OUTPUT), NO_OUTPUT]


def test_an_id_may_be_used_again_once_it_has_its_output() -> None:
    assert read_all(CALL, OUTPUT, CALL, OUTPUT) == [CALL, parts.Whole(OUTPUT)] * 2


def test_an_output_without_a_call_becomes_a_warning() -> None:
    assert read_all(OUTPUT) == [NO_CALL]
    assert read_all(CALL, OUTPUT, OUTPUT) == [CALL, parts.Whole(OUTPUT), NO_CALL]


def test_an_output_that_grows_is_an_output_too() -> None:
    states = [parts.ItemState(OUTPUT, "o"), parts.ItemState(replace(OUTPUT, output="found it"), "o", complete=True)]
    assert read_all(CALL, *states) == [CALL, *states]


def test_an_output_may_answer_a_call_of_an_earlier_response() -> None:
    call = FunctionCall(call_id="c1", name="search", arguments="{}", status="completed")
    none_yet = FunctionCallOutput(call_id="c1", output="No output was given for this call.", status="incomplete")
    assert read_all(OUTPUT, history=[call]) == [parts.Whole(OUTPUT)]
    assert read_all(OUTPUT, history=[call, none_yet]) == [parts.Whole(OUTPUT)]
    assert read_all(OUTPUT, history=[call, replace(OUTPUT, status="completed")]) == [NO_CALL]


def test_an_output_may_be_any_value_or_a_list_of_contents() -> None:
    def read_output(value: object) -> object:
        _, whole = read_all(CALL, FunctionCallOutput(call_id="c1", output=value))  # pyright: ignore[reportArgumentType]
        assert isinstance(whole, parts.Whole)
        assert isinstance(whole.item, FunctionCallOutput)
        return whole.item.output

    contents = [InputText(text="found")]
    assert read_output(contents) == contents
    assert [read_output(value) for value in ({"n": 1}, [1, 2], None)] == ['{"n":1}', "[1,2]", "null"]

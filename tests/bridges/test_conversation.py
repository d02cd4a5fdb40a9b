"""What the bridges to agent frameworks share."""

import pytest

from antiphon.agents.agent import Turn
from antiphon.bridges.conversation import choose_name, client_functions, paired_items
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, user_message
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionTool

ASKED = user_message("How is the weather?")
CALL = FunctionCall(call_id="c1", name="get_weather", arguments="{}")


def turn_with(*names: str, **fields: object) -> Turn:
    request = Request.from_message("any", "Hi", tools=[FunctionTool(name=name) for name in names], **fields)
    return Turn(request, request.input)


@pytest.mark.parametrize(
    ("given", "own", "name"),
    [
        ("meteo", "Weather bot", "meteo"),
        (None, "Weather bot / v2", "weather-bot-v2"),
        (None, " / ", "agent"),
        (None, None, "agent"),
    ],
)
def test_a_name_is_the_given_one_or_one_word_of_the_agents_own(given: str | None, own: str | None, name: str) -> None:
    assert choose_name(given, own, "agent") == name


def test_a_call_without_an_output_gets_one_that_says_so() -> None:
    request = Request(input=[ASKED, CALL])
    [asked, call, output] = paired_items(Turn(request, request.input))
    assert (asked, call) == (ASKED, CALL)
    assert isinstance(output, FunctionCallOutput)
    assert output.output == "No output was given for this call."


def test_a_function_with_the_name_of_the_agents_own_tool_is_an_error_of_the_client() -> None:
    with pytest.raises(RequestError, match=r"a tool 'search' of its own\. Offer yours under another name") as caught:
        client_functions(turn_with("look", "search"), {"search"})
    assert (caught.value.payload.param, caught.value.status) == ("tools[1].name", 400)


def test_a_function_that_may_not_be_called_disturbs_nobody() -> None:
    assert client_functions(turn_with("search", tool_choice="none"), {"search"}) == []
    assert [tool.name for tool in client_functions(turn_with("look"), {"search"})] == ["look"]

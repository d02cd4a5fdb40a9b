"""Chains and chat models of LangChain as models."""

import json

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnableParallel

from antiphon.bridges.langgraph import wrap_agent
from antiphon.protocol.struct import InvalidValueError
from tests.bridges.cases import CLIENT_TOOLS, answer_calls, deltas, summarize
from tests.bridges.test_langgraph import HELLO, messages_of, serve
from tests.bridges.words_model import WordsModel, call_tool
from tests.server.stateful_server import output_text


def join_texts(messages: list[BaseMessage]) -> str:
    """Say what the model was given."""
    return " ".join(message.text for message in messages)


def test_a_chat_model_streams_and_counts() -> None:
    with serve(HELLO) as served:
        events = served.stream("you")
    assert deltas(events) == ["Hello ", "you "]
    assert events[-1]["response"]["usage"]["total_tokens"] == 15


def test_a_chat_model_gets_the_parameters_and_the_tools_of_the_request() -> None:
    def answer(messages: list[BaseMessage]) -> str | AIMessage:
        last = messages[-1]
        return f"You are {last.text}." if isinstance(last, ToolMessage) else call_tool("get_user")

    model = WordsModel(answer=answer)
    with serve(model) as served:
        first = served.ask("Hi", tools=CLIENT_TOOLS, tool_choice="required", temperature=0.5, stop=["."], top_p=0.9)
        assert summarize(first) == [["call", "get_user", {}]]
        outputs = answer_calls(first, get_user="Ada")
        second = served.ask(outputs, tools=CLIENT_TOOLS, previous_response_id=first["id"], seed=7)
    assert output_text(second) == "You are Ada. "
    assert [warning["param"] for warning in second["antiphon:warnings"]] == ["seed"]
    tools = model.calls[0].pop("tools")
    assert [tool["function"]["name"] for tool in tools] == ["get_user", "get_place"]
    assert model.calls[0] == {"tool_choice": "any", "temperature": 0.5, "stop": ["."], "top_p": 0.9}


def test_a_chain_with_a_placeholder_gets_the_whole_conversation() -> None:
    prompt = ChatPromptTemplate.from_messages([("system", "Be kind."), MessagesPlaceholder("messages")])
    with serve(prompt | WordsModel(answer=join_texts) | StrOutputParser()) as served:
        first = served.ask("one", instructions="Be brief.")
        assert messages_of(first) == ["Be kind. Be brief. one "]
        second = served.ask("two", previous_response_id=first["id"])
    assert messages_of(second) == ["Be kind. one Be kind. Be brief. one two "]


def test_a_chain_with_other_variables_says_what_it_needs() -> None:
    chain = ChatPromptTemplate.from_template("About {topic}") | WordsModel(answer=join_texts)
    with pytest.raises(InvalidValueError, match="does not take 'messages' but 'topic'"):
        wrap_agent(chain)
    with serve(chain, input=lambda turn: {"topic": turn.text}) as served:
        assert messages_of(served.ask("cats")) == ["About cats "]
    with pytest.raises(InvalidValueError, match="but something else"):
        wrap_agent(RunnableLambda(lambda value: value))


def test_an_output_that_is_no_text_is_json() -> None:
    json_model = WordsModel(answer=lambda messages: '{"city": "Oslo"}')
    with serve(json_model | JsonOutputParser()) as served:
        assert messages_of(served.ask("Hi")) == ['{"city": "Oslo"}']
    both = RunnableParallel(left=HELLO | StrOutputParser(), right=HELLO | StrOutputParser())
    with serve(both, input=lambda turn: turn.text) as served:
        [text] = messages_of(served.ask("you"))
    # Both run at once: either may be the first.
    assert json.loads(text) == {"left": "Hello you ", "right": "Hello you "}


def test_a_chain_takes_no_tools_and_says_so() -> None:
    with serve(HELLO | StrOutputParser()) as served:
        [warning] = served.ask("you", tools=CLIENT_TOOLS)["antiphon:warnings"]
    assert (warning["code"], warning["param"]) == ("unsupported_tool", "tools")


def test_the_options_of_a_graph_are_errors_for_a_chain() -> None:
    with pytest.raises(InvalidValueError, match="only a compiled graph has this option"):
        wrap_agent(HELLO, output_key="answer")

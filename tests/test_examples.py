"""Every example, run by a real server and asked by a real client."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from openai import OpenAI
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall, ResponseInputParam

from tests.clients.openai_events import output_as_input
from tests.run_server import ROOT, run_command, run_server

EXAMPLES = ROOT / "examples"

WEATHER = FunctionToolParam(
    type="function",
    name="get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,
)


@contextmanager
def example(name: str) -> Iterator[OpenAI]:
    """Serve an example as its first lines say, and give a client of it."""
    with (
        run_command("--app", name, cwd=EXAMPLES) as (address, _),
        OpenAI(base_url=f"{address}/openai/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_my_agent_has_two_entries() -> None:
    with example("my_agent") as client:
        models = [model.id for model in client.models.list()]
        said = client.responses.create(model="my-agent", input="Good morning to you")
        with client.responses.stream(model="my-agent/echo", input="Hear me out") as stream:
            heard = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert models[-2:] == ["my-agent", "my-agent/echo"]
    assert said.output_text == "You said “Good morning to you”, and that is 4 words."
    assert heard == ["Hear me out … ", "me out … ", "out … "]


def test_a_traveller_calls_its_tool_for_every_city_and_then_answers() -> None:
    asked: ResponseInputParam = [{"role": "user", "content": "From Oslo to Quito!"}]
    with example("tools") as client:
        helpless = client.responses.create(model="traveller", input=asked)
        calling = client.responses.create(model="traveller", input=asked, tools=[WEATHER])
        calls = [item for item in calling.output if isinstance(item, ResponseFunctionToolCall)]
        outputs: ResponseInputParam = [
            {"type": "function_call_output", "call_id": call.call_id, "output": call.arguments} for call in calls
        ]
        said = [*asked, *output_as_input(calling), *outputs]
        answer = client.responses.create(model="traveller", input=said, tools=[WEATHER])
    offer = "Offer me the tool get_weather, and name some of Lisbon, Oslo, Quito."
    assert (helpless.output_text, len(helpless.output)) == (offer, 1)
    assert answer.output_text == 'Pack for this: {"city": "Oslo"}; {"city": "Quito"}'


def test_a_mounted_antiphon_answers_under_its_prefix() -> None:
    app = runpy.run_path(str(EXAMPLES / "mounted.py"))["app"]
    with run_server(app) as address:
        for door in ("/ai/v1", "/ai/openai/v1"):
            with OpenAI(base_url=address + door, api_key="none", max_retries=0) as client:
                said = client.responses.create(model="parrot", input="Hi!")
                with client.responses.stream(model="parrot", input="Hi!") as stream:
                    final = stream.get_final_response()
            assert said.output_text == final.output_text == "Hi! Hi!"


def test_a_chat_goes_on_from_what_was_said(server: str) -> None:
    chat = subprocess.run(
        [sys.executable, str(EXAMPLES / "chat.py"), "demo", f"{server}/openai/v1"],
        input="I am Alice.\nFAIL\nWho am I?\n\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    hello = "Hello from Antiphon's demo model. You said:"
    assert chat.stdout.splitlines() == [
        f"> {hello} I am Alice.",
        "> Hello from Antiphon's demoThe model 'demo' failed while answering.",
        f"> {hello} Who am I? This conversation has 3 messages.",
        "> ",
    ]
    assert chat.stderr == ""


def test_an_agent_talks_in_a_terminal_and_remembers() -> None:
    with run_command() as (address, _):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "agent.py")],
            input="What does the clock say?\nHello!\n\n",
            env=os.environ | {"ANTIPHON_BASE_URL": f"{address}/v1"},
            capture_output=True,
            text=True,
            check=True,
        )
    called, answered, _, hello, *_ = done.stdout.splitlines()
    assert re.fullmatch(r"> \[clock\(\{\}\) = \d\d:\d\d\]", called)
    assert answered.startswith("clock says: ")
    assert hello.endswith("You said: Hello! This conversation has 3 messages.")

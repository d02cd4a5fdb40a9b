"""The examples of docs/serve-agents.md, served and asked as they are written."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args

import pytest

import antiphon
from antiphon import Turn
from antiphon.protocol import parts
from tests.http_client import http_client, post_response, stream_events
from tests.run_server import ROOT, run_command

PAGE = (ROOT / "docs" / "serve-agents.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CLIENTS = [block for block in BLOCKS if block.startswith("# client")]
AGENTS = "\n\n".join(block for block in BLOCKS if not block.startswith("# client"))
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("trip")
    (folder / "trip.py").write_text(AGENTS)
    [command] = re.findall(r"```sh\nantiphon serve (.*?)\n```", PAGE)
    with run_command(*command.split(), cwd=folder) as (address, _):
        yield address


def ask(address: str, model: str, text: str = "Hello!", **fields: Any) -> dict[str, Any]:
    """Return the response of a model."""
    return post_response(address, model=model, input=text, **fields).json()


def text_of(response: dict[str, Any]) -> str:
    contents = (item.get("content") or () for item in response["output"] if item["type"] == "message")
    return "".join(part.get("text") or part.get("refusal") for content in contents for part in content)


def warning_codes(response: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in response.get("antiphon:warnings", [])]


def test_the_examples_of_clients_print_the_answers(address: str) -> None:
    script = "\n".join(CLIENTS).replace("http://127.0.0.1:8000", address)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("You said: Ahoy!mirror was asked 'And now?' with 0 images. 2 items came before 1 new")


def test_entries_are_models_and_described(address: str) -> None:
    assert text_of(ask(address, "hello/loud")) == "HELLO!"
    assert post_response(address, model="hello/lout").json()["error"]["code"] == "model_not_found"
    with http_client(address) as http:
        models = {model["id"]: model for model in http.get("/v1/models").json()["data"]}
    assert models["hello"]["antiphon:agent"]["description"] == "Repeats what you say."
    assert models["hello/loud"]["antiphon:agent"]["description"] == "Repeats it louder."
    assert models["guide"]["owned_by"] == "acme"
    assert models["guide"]["antiphon:agent"]["metadata"] == {"team": "travel"}
    assert models["guide"]["antiphon:agent"]["context_window"] == 100_000


def test_a_turn_has_every_field_that_the_page_lists(address: str) -> None:
    content = [{"type": "input_text", "text": "Look!"}, {"type": "input_image", "image_url": IMAGE}]
    first = ask(address, "hello")
    body = {
        "model": "mirror",
        "input": [{"role": "user", "content": content}],
        "previous_response_id": first["id"],
        "instructions": "Be kind",
        "metadata": {"who": "me"},
        "tools": [WEATHER],
        "temperature": 0.5,
        "max_output_tokens": 500,
    }
    with http_client(address) as http:
        response = http.post("/v1/responses", json=body, headers={"x-request-id": "my-request"}).json()
    assert text_of(response) == (
        "mirror was asked 'Look!' with 1 images. 2 items came before 1 new ones, 3 in all. "
        "Instructions: Be kind. Metadata: {'who': 'me'}. Entry: __entry__. "
        "Tools: ['get_weather'], choice: auto. Outputs: []. Limits: 500 tokens, temperature 0.5. "
        "Ids: resp_, my-request. Cancelled: False."
    )
    table = PAGE.partition("| field of `Turn`")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines()[2:])))
    public = {name for name in vars(Turn) if not name.startswith("_")} | {f.name for f in dataclasses.fields(Turn)}
    assert listed == public - {"ask", "asker"}


def test_every_part_is_on_the_page_and_reaches_the_client(address: str) -> None:
    table = PAGE.partition("| part | meaning |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`([A-Z]\w+)\(", table))
    assert listed - {"UrlCitation", "ErrorPayload"} == {part.__name__ for part in get_args(parts.Part)}
    events = stream_events(address, model="tour", input="Go!")
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]] == [
        "reasoning",
        "message",
        "acme:map",
        "acme:ticket",
        "message",
    ]
    assert text_of(response) == "I am looking. See the opera."
    assert response["output"][2]["places"] == 2
    assert response["output"][-1]["content"][0]["annotations"][0]["title"] == "Opera"
    assert [event["percent"] for event in events if event["type"] == "acme:progress"] == [50]
    assert (response["usage"]["total_tokens"], warning_codes(response)) == (42, ["stale"])
    assert text_of(ask(address, "tour/closed")) == "The museum is closed."


def test_the_tools_of_the_client_and_of_the_agent(address: str) -> None:
    assert text_of(ask(address, "weather")) == "Offer me get_weather."
    first = ask(address, "weather", "Oslo", tools=[WEATHER])
    [call] = first["output"]
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city":"Oslo"}')
    output = [{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}]
    second = post_response(address, model="weather", input=output, previous_response_id=first["id"]).json()
    assert text_of(second) == "It is sunny."
    own = ask(address, "concierge", "Bristol", tool_choice="none", tools=[WEATHER])
    assert [item["type"] for item in own["output"]] == ["function_call", "function_call_output", "message"]
    assert own["output"][1]["output"] == '{"free_rooms":3}'
    assert "unanswered_call" not in warning_codes(own)


def test_asking_blocking_and_counting(address: str) -> None:
    translated = ask(address, "translator", "god dag")
    assert text_of(translated) == "Draft of 7 characters. GOD DAG"
    assert text_of(ask(address, "patient", "wait")) == "wait..."
    words = " ".join(map(str, range(20)))
    cut = ask(address, "brief", words, max_output_tokens=16)
    assert (cut["status"], cut["usage"]["output_tokens"]) == ("incomplete", 16)
    with http_client(address) as http:
        body = {"model": "brief", "input": words}
        assert http.post("/v1/responses/input_tokens", json=body).json()["input_tokens"] == 20
        compacted = http.post("/v1/responses/compact", json=body).json()
    assert compacted["output"][-1]["type"] == "compaction"


def test_errors(address: str) -> None:
    rejected = post_response(address, model="strict", input="Grüße")
    assert (rejected.status_code, rejected.json()["error"]["code"]) == (400, "not_ascii")
    broken = post_response(address, model="strict", input=" ", stream=False)
    assert "ZeroDivisionError: division by zero" in broken.json()["error"]["message"]
    assert broken.json()["error"]["code"] == "server_error"


def test_the_names_that_the_page_imports_are_public() -> None:
    imported = re.findall(r"^from antiphon import (.*)$", AGENTS, re.MULTILINE)
    names = {name for line in imported for name in line.split(", ")}
    assert names <= set(antiphon.__all__)

"""`OpenAiResponsesApiAdapter` is a drop-in for Xaibo's own: constructor, handlers, routes, and Xaibo's web server."""

import json
import subprocess
from pathlib import Path

from tests.bridges.xaibo.servers import ADAPTER, PYTHON, XaiboServer, free_port, run_python
from tests.http_client import http_client, post_response, stream_events, wait_until
from tests.server.stateful_server import output_text

DOOR = "/openai"

AGENT = """
id: {name}
modules:
  - module: xaibo.primitives.modules.llm.MockLLM
    id: llm
    config:
      responses:
        - content: {answer}
  - module: xaibo.primitives.modules.tools.ToolCollector
    id: tools
  - module: xaibo.primitives.modules.orchestrator.SimpleToolOrchestrator
    id: orchestrator
exchange:
  - module: tools
    protocol: ToolProviderProtocol
    provider: []
"""


def write_agent(folder: Path, name: str, answer: str) -> None:
    """Describe an agent in a YAML file."""
    (folder / f"{name}.yml").write_text(AGENT.format(name=name, answer=answer))


def test_the_constructor_and_the_handlers_have_the_signatures_of_xaibos(xaibo: XaiboServer) -> None:
    signatures = xaibo.get("/signatures")
    ours, theirs = signatures["ours"], signatures["theirs"]
    assert ours["constructor"] == theirs["constructor"]
    assert list(ours["constructor"].values())[1:] == ["10", "'./responses'"]
    assert ours["adapt"] == theirs["adapt"]
    handlers = {name for name in theirs["handlers"] if "store" not in name}
    assert handlers == ours["handlers"].keys() - {"_respond"}
    for name in ("create_response", "_handle_streaming_response", "_handle_non_streaming_response"):
        assert ours["handlers"][name] == theirs["handlers"][name]


def test_adapt_registers_the_routes_of_xaibos_adapter(ours: str) -> None:
    created = post_response(ours, DOOR, model="echo").json()
    with http_client(ours) as http:
        path = f"{DOOR}/responses/{created['id']}"
        assert http.get(path).json() == created
        assert len(http.get(f"{path}/input_items").json()["data"]) == 1
        assert http.post(f"{path}/cancel").json()["detail"] == "Only background responses can be cancelled"
        assert http.delete(path).json() == {"id": created["id"], "object": "response", "deleted": True}
        assert http.get(path).json()["detail"] == "Response not found"
        paths = http.get("/openapi.json").json()["paths"]
    assert [path for path in paths if path.startswith("/openai")] == [
        "/openai/responses",
        "/openai/responses/{response_id}",
        "/openai/responses/{response_id}/cancel",
        "/openai/responses/{response_id}/input_items",
    ]


def test_a_relative_folder_of_the_configuration_is_created(xaibo: XaiboServer) -> None:
    post_response(xaibo.url, DOOR, model="echo")
    assert (xaibo.folder / "data/responses/responses.db").exists()


def test_the_timeout_bounds_silence_and_nothing_else(xaibo: XaiboServer) -> None:
    impatient = f"{xaibo.url}/impatient"
    # Longer than the timeout in all, but never silent for so long.
    assert output_text(post_response(impatient, DOOR, model="slow").json()) == "word0 word1 word2 "
    silent = post_response(impatient, DOOR, model="asleep", stream=True)
    assert [silent.status_code, silent.json()["error"]["code"]] == [504, "agent_timeout"]


def test_a_subclass_may_prepare_the_conversation(xaibo: XaiboServer) -> None:
    preparing = f"{xaibo.url}/preparing"
    whole = post_response(preparing, DOOR, model="appends", input="The world.").json()
    streamed = stream_events(preparing, DOOR, model="appends", input="The world.")[-1]["response"]
    for response in (whole, streamed):
        said = [message["content"][0]["text"] for message in json.loads(output_text(response))]
        assert said == ["Whom do you want to greet?", "The world."]
        assert response["user"] == "ada"


def test_xaibos_web_server_runs_it_and_reloads_agents(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    write_agent(folder, "first", "One.")
    with free_port() as port:
        command = ["-m", "xaibo.server.web", "--agent-dir", str(folder), "--adapter", ADAPTER, "--port", str(port)]
    with run_python(*command, port=port, cwd=tmp_path) as url:
        assert output_text(post_response(url, DOOR, model="first").json()) == "One."
        assert post_response(url, DOOR, model="second").status_code == 400
        write_agent(folder, "second", "Two.")
        wait_until(lambda: post_response(url, DOOR, model="second").status_code == 200)
        assert output_text(post_response(url, DOOR, model="second").json()) == "Two."
        assert (tmp_path / "responses/responses.db").exists()


LOAD = """
import sys
from antiphon.bridges.xaibo import load_folder
print([(agent.name, agent.models) for agent in load_folder(sys.argv[1])])
load_folder(sys.argv[2])
"""


def test_a_folder_of_agents_is_loaded(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, names in ((good, "ba"), (bad, "aa")):
        for number, name in enumerate(names):
            (folder / str(number)).mkdir(parents=True)
            write_agent(folder / str(number), name, "Hi.")
    done = subprocess.run([PYTHON, "-c", LOAD, good, bad], capture_output=True, text=True)
    assert done.stdout == "[('b', ['b']), ('a', ['a'])]\n"
    reason = f"{bad}/0/a.yml and {bad}/1/a.yml both describe the agent 'a'."
    assert reason in done.stderr.splitlines()[-1]

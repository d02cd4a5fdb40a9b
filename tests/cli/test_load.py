"""What --app and --agents load: agents of frameworks, and folders of agents."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli.load import TargetLoader
from antiphon.cli.main import StartupError
from antiphon.server.settings import Settings
from tests.http_client import http_client, post_response
from tests.run_server import run_command, run_server

AGENT = "from antiphon import agent\n\n\n@agent('{0}')\ndef {0}(turn): return 'I am {0}.'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the current folder, which has a folder of agents; the modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "agents").mkdir()
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def write(folder: Path, **files: str) -> Path:
    """Write Python files; two underscores in a name are a subfolder."""
    for name, source in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def agent_names(*targets: str, agents: str | None = None) -> list[str]:
    """Return the names of the agents that are loaded."""
    loaded = TargetLoader().load(targets, [Path(agents)] if agents else [])
    assert isinstance(loaded, Settings)
    return [agent.name for agent in loaded.agents]


FRAMEWORK_AGENTS = """
from pydantic_ai import Agent

support = Agent("test")
same = support
named = Agent("test", name="Named agent")
both = [support, named]
by_name = {"Help desk": support, "named-agent": named}
_hidden = Agent("test")
"""


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["framework"], ["support", "named-agent"]),
        (["framework:_hidden"], ["_hidden"]),
        (["framework:both"], ["both", "named-agent"]),
        (["framework:by_name"], ["help-desk", "named-agent"]),
        (["framework", "framework:by_name", "framework:same"], ["support", "named-agent", "help-desk"]),
    ],
)
def test_an_agent_of_a_framework_has_its_own_name_or_that_of_its_variable(
    folder: Path, targets: list[str], names: list[str]
) -> None:
    write(folder, framework=FRAMEWORK_AGENTS)
    assert agent_names(*targets) == names


GRAPHS = """
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph

builder = StateGraph(MessagesState)
builder.add_node("answer", lambda state: {"messages": [AIMessage("From a graph.")]})
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
named = builder.compile(name="Named graph")
prompt = ChatPromptTemplate.from_messages([("user", "{question}")])
chain = ChatPromptTemplate.from_messages([("placeholder", "{messages}")]) | RunnableLambda(lambda _: "From a chain.")
"""


def test_a_module_is_its_graphs_and_a_chain_is_named(folder: Path) -> None:
    write(folder, graphs=GRAPHS)
    assert agent_names("graphs") == ["graph", "named-graph"]
    assert agent_names("graphs:chain") == ["chain"]
    with pytest.raises(StartupError, match=r"^prompt: input: this ChatPromptTemplate does not take 'messages'"):
        agent_names("graphs:prompt")
    with run_server(TargetLoader().load(["graphs", "graphs:chain"])) as address:
        answers = [post_response(address, model=name).json() for name in ("graph", "chain")]
    texts = [answer["output"][0]["content"][0]["text"] for answer in answers]
    assert texts == ["From a graph.", "From a chain."]


def test_agents_of_frameworks_answer(folder: Path) -> None:
    write(folder, framework=FRAMEWORK_AGENTS)
    with run_server(TargetLoader().load(["framework:by_name"])) as address:
        answer = post_response(address, model="help-desk").json()
    assert answer["output"][0]["content"][0]["text"] == "success (no tool calls)"


def test_a_folder_is_all_agents_of_its_modules_and_packages(folder: Path) -> None:
    write(
        folder / "agents",
        zoe=AGENT.format("zoe"),
        adam="from zoe import zoe\nfrom shared import name\n" + AGENT.format("adam"),
        shared="name = 'shared'",
        _hidden="raise SystemExit",
        package__init="raise SystemExit",
    )
    package = folder / "agents" / "package"
    (package / "init.py").rename(package / "__init__.py")
    write(package, inner=AGENT.format("inner"))
    (package / "__init__.py").write_text("from package.inner import inner")
    assert sorted(agent_names(agents="agents")) == ["adam", "inner", "zoe"]
    assert sorted(agent_names("zoe", agents="agents")) == ["adam", "inner", "zoe"]


def test_a_folder_that_is_a_package_has_relative_imports(folder: Path) -> None:
    write(folder / "team", one="from .shared import agent\n" + AGENT.format("one"), shared="from antiphon import agent")
    (folder / "team" / "__init__.py").write_text("from .one import one\n" + AGENT.format("whole"))
    assert agent_names(agents="team/") == ["one", "whole"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "agents has no agents. Make one with @agent('name')."),
        (
            {"good": AGENT.format("good"), "late": "import os\nos.environ['NO_KEY']"},
            "agents/late.py, line 2: KeyError: 'NO_KEY'.\n    os.environ['NO_KEY']",
        ),
        ({"wrong": "def f(:"}, "agents/wrong.py, line 1: invalid syntax. Correct it."),
        (
            {"json": AGENT.format("json")},
            "agents/json.py: the module 'json' of {} has the same name. Rename this file.",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_reported(folder: Path, files: dict[str, str], message: str) -> None:
    write(folder / "agents", **files)
    with pytest.raises(StartupError) as caught:
        agent_names(agents="agents")
    assert str(caught.value) == message.format(sys.modules["json"].__file__)


def test_a_key_that_can_name_no_model_is_reported(folder: Path) -> None:
    write(folder, unnamed=AGENT.format("agent_") + "by_name = {'/': agent_}\n")
    with pytest.raises(StartupError, match=r"^'/' cannot be the name of a model. Choose another key.$"):
        agent_names("unnamed:by_name")


def test_a_folder_that_does_not_exist_is_reported(folder: Path) -> None:
    with pytest.raises(StartupError, match=r"^nowhere is not a folder. Check --agents.$"):
        agent_names(agents="nowhere")


def test_agents_of_yaml_need_xaibo(folder: Path) -> None:
    (folder / "agents" / "assistant.yml").write_text("id: assistant")
    advice = "'xaibo' is not installed. Install it with: pip install 'antiphon[xaibo]'"
    with pytest.raises(StartupError) as caught:
        agent_names(agents="agents")
    assert str(caught.value) == f"agents has only YAML files. {advice}"


def test_one_command_serves_a_folder_and_stores_its_responses(folder: Path) -> None:
    write(folder / "agents", hello=AGENT.format("hello"))
    with run_command("--agents", "./agents", cwd=folder) as (address, _):
        created = post_response(address, model="hello").json()
        assert created["output"][0]["content"][0]["text"] == "I am hello."
        assert (folder / "responses" / "responses.db").exists()
    with run_command("--agents", "./agents", cwd=folder) as (address, _), http_client(address) as http:
        assert http.get(f"/v1/responses/{created['id']}").json() == created


def list_models(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `antiphon models` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "antiphon", "models", *arguments],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_a_module_that_takes_long_to_import_is_named(folder: Path) -> None:
    write(folder, quick=AGENT.format("quick"), slow="import time\ntime.sleep(1.5)\n" + AGENT.format("slow"))
    quick, slow = (list_models(folder, "--app", name) for name in ("quick", "slow"))
    assert (quick.stderr, slow.stderr) == ("", "importing slow …\n")
    assert "  slow  " in slow.stdout

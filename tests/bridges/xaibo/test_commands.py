"""The command line with Xaibo's agents: from YAML files, and from an instance in a module."""

import json
import subprocess
from pathlib import Path

from tests.bridges.xaibo.servers import PYTHON

YAML = """
id: Sales assistant
modules:
  - module: xaibo.primitives.modules.llm.MockLLM
    id: llm
    config: {responses: [{content: Hello}]}
  - module: xaibo.primitives.modules.orchestrator.SimpleToolOrchestrator
    id: orchestrator
    config: {system_prompt: Be kind.}
"""

MODULE = """
from pathlib import Path
from antiphon import agent
from xaibo import AgentConfig, Xaibo

xaibo = Xaibo()
xaibo.register_agent(AgentConfig.from_yaml(Path("agents/sales.yml").read_text()))

@agent("plain")
def plain(turn): return "plain"
"""


def list_agents(folder: Path, *arguments: str) -> list[str]:
    """Return the agents that `antiphon models` lists."""
    command = [PYTHON, "-m", "antiphon", "models", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)["agents"]


def test_xaibos_agents_are_served_from_a_folder_and_from_a_module(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "sales.yml").write_text(YAML)
    (tmp_path / "team.py").write_text(MODULE)
    assert list_agents(tmp_path, "--agents", "agents") == ["demo", "echo", "sales-assistant"]
    assert list_agents(tmp_path, "--app", "team") == ["demo", "echo", "sales-assistant", "plain"]

"""The example of a Xaibo agent, served by the command line, and the code of docs/xaibo.md."""

import re
import subprocess
from pathlib import Path

from openai import OpenAI

from tests.bridges.xaibo.servers import PYTHON, free_port, run_python
from tests.run_server import ROOT

EXAMPLE = ROOT / "examples/agents/xaibo_agent.py"


def test_the_example_is_served_as_it_is(server: str) -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line]) < 15
    with free_port() as port:
        command = ["-m", "antiphon", "serve", "--app", "xaibo_agent", "--port", str(port), "--data", ":memory:"]
    environment = {"MODEL": "demo", "MODEL_URL": f"{server}/openai/v1", "OPENAI_API_KEY": "none"}
    with (
        run_python(*command, port=port, cwd=EXAMPLE.parent, environment=environment) as url,
        OpenAI(base_url=f"{url}/openai/v1", api_key="none", max_retries=0) as client,
    ):
        models = [model.id for model in client.models.list()]
        response = client.responses.create(model="assistant", input="How is the weather in Oslo?")
        again = client.responses.create(model="assistant", input="Thank you!", previous_response_id=response.id)
    assert "assistant" in models
    assert [item.type for item in response.output] == ["function_call", "function_call_output", "message"]
    assert "It snows in Oslo." in response.output_text
    assert "Thank you!" in again.output_text


def test_the_code_of_the_documentation_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.+?)```", (ROOT / "docs/xaibo.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    code = "\n".join(["from xaibo import Xaibo", "xaibo = Xaibo()", *blocks, "print(len(app.routes))"])
    done = subprocess.run([PYTHON, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert int(done.stdout) > 4, done.stderr

"""The examples of agents of other frameworks, served by the command line and asked by OpenAI's client."""

import pytest
from openai import OpenAI

from tests.run_server import ROOT, run_command


@pytest.mark.parametrize("example", ["openai_agents_agent", "pydantic_ai_agent", "langgraph_agent"])
def test_an_example_is_served_as_it_is(example: str, server: str) -> None:
    source = ROOT / "examples" / "agents" / f"{example}.py"
    env = {
        "OPENAI_BASE_URL": f"{server}/openai/v1",
        "OPENAI_API_KEY": "none",
        "OPENAI_DEFAULT_MODEL": "demo",
        "MODEL": "openai:demo",
    }
    assert len(source.read_text().splitlines()) < 15
    with (
        run_command("--app", example, cwd=source.parent, env=env) as (address, _),
        OpenAI(base_url=f"{address}/openai/v1", api_key="none", max_retries=0) as client,
    ):
        models = [model.id for model in client.models.list()]
        with client.responses.stream(model="assistant", input="How is the weather in Oslo?") as stream:
            types = [event.type for event in stream]
            response = stream.get_final_response()
        again = client.responses.create(model="assistant", input="Thank you!", previous_response_id=response.id)
    assert "assistant" in models
    assert [item.type for item in response.output] == ["function_call", "function_call_output", "message"]
    assert response.output_text == "get_weather says: It snows in Oslo."
    assert types.count("response.output_text.delta") > 1
    assert "You said: Thank you!" in again.output_text

"""The adapter of docs/adapters/README.md, installed and used as it is printed there."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.adapters import features
from tests.adapters.provider_servers import NAMES
from tests.adapters.test_docs import PAGES, adapter, observed_support, table
from tests.http_client import event_types, post_response, stream_events
from tests.run_server import run_command
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, json_answer, ndjson_answer, scripted_upstream

PAGE = (PAGES / "README.md").read_text()
STREAM = b'{"words":"Hel"}\n{"words":"lo!"}\n{"stopped":"done","read":3,"wrote":2}\n'
WHOLE = {"words": "Hello!", "stopped": "done", "read": 3, "wrote": 2}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}


def code_block(first: str) -> str:
    """Return the page's code block that begins with a line."""
    (found,) = re.findall(rf"```\w+\n# {re.escape(first)}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the package in it, as an installer leaves one."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "acme_antiphon.py").write_text(code_block("acme_antiphon.py"))
    info = folder / "acme_antiphon-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-antiphon\nVersion: 1.0\n")
    groups = tomllib.loads(code_block("pyproject.toml"))["project"]["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in groups.items()
        )
    )
    return folder


@contextmanager
def serve_acme(site: Path, folder: Path, *answers: ScriptedAnswer) -> Iterator[tuple[str, ScriptedUpstream]]:
    """Serve what a scripted Acme says; give the server's address and Acme."""
    with scripted_upstream(*answers) as acme:
        there = f'base_url = "{acme.url}"\napi_key_env = "ACME_API_KEY"\n'
        (folder / "antiphon.toml").write_text(code_block("antiphon.toml") + there)
        variables = {"PYTHONPATH": str(site), "ACME_API_KEY": "secret"}
        with run_command(cwd=folder, env=variables) as (address, _):
            yield address, acme


def test_an_adapter_of_ones_own_streams_and_answers_whole(site: Path, tmp_path: Path) -> None:
    asked = {"model": "acme/large", "instructions": "Be brief.", "temperature": 0.5, "seed": 7}
    with serve_acme(site, tmp_path, ndjson_answer(STREAM), json_answer(WHOLE)) as (address, acme):
        events = stream_events(address, **asked)
        answer = post_response(address, **asked).json()
    final = events[-1]["response"]
    assert event_types(events)[-1] == "response.completed"
    for response in (final, answer):
        assert response["output"][0]["content"][0]["text"] == "Hello!"
        assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (3, 2)
        assert [warning["param"] for warning in response["antiphon:warnings"]] == ["seed"]
    first = acme.requests[0]
    assert (first.path, first.headers["x-acme-key"]) == ("/say", "secret")
    assert [request.json for request in acme.requests] == [
        {
            "model": "large",
            "lines": [{"who": "system", "words": "Be brief."}, {"who": "user", "words": "Hi!"}],
            "heat": 0.5,
            "most": None,
            "stream": stream,
        }
        for stream in (True, False)
    ]


def test_unsupported_input_is_rejected_and_a_broken_stream_fails(site: Path, tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    shown = [{"role": "user", "content": [image]}]
    with serve_acme(site, tmp_path, ndjson_answer(b'{"words":"Hel"}\n')) as (address, acme):
        refused = post_response(address, model="acme/large", input=shown)
        called = post_response(address, model="acme/large", input=[CALL, OUTPUT])
        cut = stream_events(address, model="acme/large")[-1]["response"]
        assert len(acme.requests) == 1
    assert (refused.status_code, called.status_code) == (400, 400)
    assert refused.json()["error"]["param"] == "input[0].content[0]"
    assert called.json()["error"]["param"] == "input[0]"
    assert (cut["status"], cut["error"]["code"]) == ("failed", "upstream_cut")


def test_the_table_lists_what_all_adapters_support() -> None:
    words = {"a warning": "warning", "a 400": "400", "done here": "here"}
    rows = table(PAGE, "feature", *NAMES)
    assert {feature for feature, *_ in rows} == features.ALL_FEATURES
    for feature, *cells in rows:
        assert cells == [
            "yes" if feature in adapter(name).features else words[observed_support(name, feature)] for name in NAMES
        ]

"""The pages about the adapters, compared with the adapters."""

import re
from importlib import import_module
from itertools import groupby
from typing import get_args

import pytest

from antiphon.adapters import features
from antiphon.adapters.base import Adapter, Provider
from antiphon.engine.run import ToolChoiceFilter
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Content, Item, ItemStatus
from antiphon.protocol.request import JsonSchemaFormat, OutputFormat, ReasoningConfig, Request, ServiceTier, TextConfig
from antiphon.protocol.struct import type_names
from antiphon.protocol.tools import FunctionTool, ToolChoiceMode
from tests.adapters.provider_servers import NAMES, SCENE_MODULES
from tests.adapters.run_adapter import decode_parts, encode_request, synthesize
from tests.adapters.scenes import FORMAT, TIME, TOOL
from tests.run_server import ROOT

PAGES = ROOT / "docs" / "adapters"
HEADINGS = ["Requests", "Events", "Stop reasons", "Not carried", "Ids and indexes", "Approximated and omitted"]


def adapter(name: str) -> Adapter:
    """Make an adapter at its provider's own address."""
    provider = Provider(name=name, adapter=name, endpoint="https://a.example", region="eu-west-1")
    return SCENE_MODULES[name].ADAPTER(provider)


# --- reading a page -------------------------------------------------------------------------------


def page(name: str) -> dict[str, str]:
    """Return the sections of a page by their headings."""
    _, *sections = re.split(r"^## ", (PAGES / f"{name}.md").read_text(), flags=re.MULTILINE)
    return {title: text for title, _, text in (part.partition("\n") for part in sections)}


def table(text: str, *columns: str) -> list[list[str]]:
    """Return the rows of the first table, which must have these columns."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == list(columns)
    assert set(rows[1]) == {"---"}
    assert {len(row) for row in rows} == {len(columns)}
    return rows[2:]


def by_name(rows: list[list[str]]) -> dict[str, list[str]]:
    """Return rows by their first cells, none of which may come twice."""
    found = {name: rest for name, *rest in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_page_has_the_same_headings(name: str) -> None:
    assert list(page(name)) == HEADINGS
    assert all(text.strip() for text in page(name).values())


# --- requests -------------------------------------------------------------------------------------

NESTED = {"text": TextConfig, "text.format": JsonSchemaFormat, "reasoning": ReasoningConfig, "tools[]": FunctionTool}
"""The values within a request whose fields a page may name."""

KINDS = [*get_args(Item), *get_args(Content), *get_args(OutputFormat)]
TYPES = {name for kind in KINDS for name in type_names(kind)}
OPENAI = {"custom", "custom_tool_call", "input_audio", "web_search"}
"""Types of OpenAI's, which may be written without their slug."""

VALUES = {*get_args(ToolChoiceMode), *get_args(ServiceTier), *get_args(ItemStatus)}
OTHERS = re.compile(r"[a-z]+:[a-z_<>…]+|[a-z()]+://")
"""The type of a tool as `slug:name`, or how an address begins."""


def fields() -> set[str]:
    """Return every field of a request that has a name of its own, as a path."""
    names = set(Request.__struct_fields__)
    return names | {f"{at}.{name}" for at, kind in NESTED.items() for name in kind.__struct_fields__}


def backticked_names(cell: str) -> list[str]:
    """Return what a cell names, without the values beside."""
    return [name.partition(": ")[0].strip('"') for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_fields_that_requests_have(name: str) -> None:
    rows = table(page(name)["Requests"], "ours", "theirs")
    ours = [word for cell, _ in rows for word in backticked_names(cell)]
    known = fields() | TYPES | OPENAI | VALUES
    assert [word for word in ours if word not in known and not OTHERS.fullmatch(word)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_lists_the_field_of_every_supported_option(name: str) -> None:
    rows = table(page(name)["Requests"], "ours", "theirs")
    ours = {word for cell, _ in rows for word in backticked_names(cell)}
    whole = {word.partition(".")[0] for word in ours} | ours
    carried = adapter(name).features
    told = {feature for feature, row in features.FEATURES.items() if row.param in whole}
    assert told <= carried
    if not any(cell.startswith(("all else", "every other field")) for cell, _ in rows):
        assert features.FEATURES.keys() & carried == told


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_events_of_every_scene(name: str) -> None:
    shown = by_name(table(page(name)["Events"], "scene", "events"))
    assert {scene: cells[0] for scene, cells in shown.items()} == {
        scene: ", ".join(f"`{type}`" for type in events(name, scene)) for scene in SCENE_MODULES[name].SCENES
    }


def events(name: str, scene: str) -> list[str]:
    """Return the types of a scene's events, those that repeat once."""
    played = SCENE_MODULES[name].SCENES[scene]
    asking = encode_request(adapter(name), stream=True, **played.request)
    made, _ = synthesize(asking, decode_parts(asking, played.stream))
    return [type for type, _ in groupby(event.type for event in made)]


# --- stop reasons ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_page_lists_the_result_of_every_stop_reason(name: str) -> None:
    decoder = encode_request(adapter(name)).decoder
    reasons = vars(import_module(type(decoder).__module__))["REASONS"]
    shown = by_name(table(page(name)["Stop reasons"], "they say", "status", "reason"))
    assert shown == {word: finish_events(name, reason) for word, reason in reasons.items()}


def finish_events(name: str, reason: parts.Reason) -> list[str]:
    """Return the status and the incomplete reason of an answer that stopped so."""
    said: list[parts.Part] = [parts.Text("Hello"), parts.Finish(reason)]
    _, response = synthesize(encode_request(adapter(name)), said)
    details = response.incomplete_details
    return [response.status, details.reason if details else "-"]


# --- what is not carried --------------------------------------------------------------------------

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
ONLY_TIME = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]}
LINK = "https://a.example/it"


def user_content(part: dict) -> dict:
    """Return a request that holds a piece of content."""
    return {"input": [{"role": "user", "content": [part]}]}


PROBES: dict[str, dict] = {
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.5},
    "presence_penalty": {"presence_penalty": 0.5},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "seed": {"seed": 7},
    "stop": {"stop": ["end"]},
    "max_output_tokens": {"max_output_tokens": 100},
    "max_tool_calls": {"max_tool_calls": 3},
    "prompt_cache_key": {"prompt_cache_key": "key"},
    "safety_identifier": {"safety_identifier": "somebody"},
    "user": {"user": "somebody"},
    "logprobs": {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "service_tier": {"service_tier": "flex"},
    "verbosity": {"text": {"verbosity": "low"}},
    "reasoning": {"reasoning": {"effort": "low"}},
    "tools": {"tools": [TIME]},
    "strict_tools": {"tools": [TIME | {"strict": True}]},
    "tool_choice": {"tools": [TIME], "tool_choice": "required"},
    "parallel_tool_calls": {"tools": [TIME], "parallel_tool_calls": False},
    "allowed_tools": {"tools": [TOOL, TIME], "tool_choice": ONLY_TIME},
    "json_object": {"text": {"format": {"type": "json_object"}}},
    "json_schema": {"text": FORMAT},
    "tools_with_format": {"tools": [TIME], "text": FORMAT},
    "images": user_content({"type": "input_image", "image_url": PIXEL}),
    "image_urls": user_content({"type": "input_image", "image_url": LINK}),
    "image_detail": user_content({"type": "input_image", "image_url": PIXEL, "detail": "low"}),
    "files": user_content({"type": "input_file", "filename": "a.pdf", "file_data": PDF}),
    "file_urls": user_content({"type": "input_file", "file_url": LINK}),
    "file_ids": user_content({"type": "input_file", "file_id": "file_1"}),
    "videos": user_content({"type": "input_video", "video_url": LINK}),
    "audio": user_content({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
}
"""A request that asks for each feature."""


def test_every_feature_can_be_requested() -> None:
    assert PROBES.keys() == features.ALL_FEATURES
    for feature, row in features.FEATURES.items():
        assert row.is_requested(encode_request(adapter("responses"), **PROBES[feature]).prompt.request)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_lists_every_unsupported_feature(name: str) -> None:
    shown = by_name(table(page(name)["Not carried"], "feature", "what happens"))
    missing = features.ALL_FEATURES - adapter(name).features
    assert {feature: cells[0] for feature, cells in shown.items()} == {
        feature: observed_support(name, feature) for feature in missing
    }


def observed_support(name: str, feature: str) -> str:
    """Request a feature that an adapter does not support; return what happens."""
    try:
        asking = encode_request(adapter(name), **PROBES[feature])
    except RequestError as error:
        return f"a {error.status}"
    codes = {warning.code for warning in asking.warnings}
    if codes & {"unsupported_parameter", "unsupported_tool"}:
        return "a warning"
    if feature in features.FORMAT_FEATURES:
        assert "final_answer" in str(asking.body)
    if feature in ("allowed_tools", "parallel_tool_calls"):
        assert ToolChoiceFilter.for_request(asking.prompt.request)
    return "done here"

"""Every provider in Hashbrown's frames, through the whole server."""

import json
import re
import socket
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from antiphon.server.settings import Settings
from tests.adapters.frame_checks import (
    FIELDS,
    LOADED,
    PATH,
    PROGRESS,
    SAVED,
    Json,
    call_frames,
    expected_request,
    generation_frames,
    of_type,
    post_frames,
    summarize_frames,
    types,
    user_message,
)
from tests.adapters.provider_servers import (
    ALL_SCENES,
    NAMES,
    SCENE_MODULES,
    SERVER_SCENES,
    ProviderServers,
    configure_provider,
    serve_providers,
    stream_answer,
)
from tests.adapters.scenes import Scene, Summary, anthropic, azure, bedrock, google, ollama, openai, responses, writer
from tests.http_client import http_client, wait_until
from tests.run_server import ROOT, run_server
from tests.scripted_upstream import ScriptedAnswer, json_answer, sse_answer

TOOLS = [{"name": name, "description": "", "parameters": {}} for name in ("weather", "time")]
ENDS = {
    ("completed", None): "response.completed",
    ("incomplete", "max_output_tokens"): "response.incomplete",
    ("incomplete", "content_filter"): "response.failed",
}


@pytest.fixture(scope="module")
def home() -> Iterator[ProviderServers]:
    with serve_providers(retries=0) as served:
        yield served


def play_scene(home: ProviderServers, name: str, scene: Scene, **options: Any) -> list[Json]:
    """Play a scene, and return its frames."""
    home.upstreams[name].play(stream_answer(scene, **options))
    return post_frames(home.address, model=f"{name}/some-model", **expected_request(scene.request))


# --- what was said ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "scene"), SERVER_SCENES)
def test_frames_have_the_expected_content(home: ProviderServers, name: str, scene: str) -> None:
    told = SCENE_MODULES[name].SCENES[scene]
    frames = generation_frames(play_scene(home, name, told))
    assert summarize_frames(frames, told.expected) == {
        "text": told.expected.text,
        "refusal": told.expected.refusal,
        "reasoning": told.expected.reasoning,
        "calls": told.expected.calls,
        "end": ENDS[told.expected.status, told.expected.reason],
    }


SNAPSHOT: dict[str, list[str]] = json.loads((ROOT / "tests/adapters/hashbrown_frame_types.json").read_text())
"""The types of the frames of each provider's scenes, each once where it is repeated."""


@pytest.mark.parametrize(("name", "scene"), ALL_SCENES)
def test_the_types_of_frames_are_those_of_the_snapshot(home: ProviderServers, name: str, scene: str) -> None:
    frames = play_scene(home, name, SCENE_MODULES[name].SCENES[scene])
    assert [type.removeprefix("response.") for type, _ in groupby(types(frames))] == SNAPSHOT[f"{name}/{scene}"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scene", ["text", "text_and_call", "interleaved_calls"])
def test_frames_are_the_same_byte_by_byte(home: ProviderServers, name: str, scene: str) -> None:
    told = SCENE_MODULES[name].SCENES[scene]
    at_once, bit_by_bit = (play_scene(home, name, told, chunk_size=pieces) for pieces in (0, 1))
    assert types(bit_by_bit) == types(at_once)
    assert summarize_frames(generation_frames(bit_by_bit), told.expected) == summarize_frames(
        generation_frames(at_once), told.expected
    )


WORDS = ["Hel", "", "lo"]
WORDLESS: dict[str, tuple[bytes, int]] = {
    "openai": (openai.stream(*({"content": word} for word in WORDS)), 5),
    "azure": (azure.stream(*({"content": word} for word in WORDS)), 5),
    "writer": (writer.stream(*({"content": word} for word in WORDS)), 5),
    "ollama": (b"".join(map(ollama.message_line, WORDS)) + ollama.last_line(), 4),
    "anthropic": (anthropic.stream(anthropic.text_deltas(0, *WORDS), "end_turn", anthropic.usage(3, 4)), 3),
    "bedrock": (bedrock.stream(bedrock.text(0, *WORDS)), 3),
    "google": (
        google.sse_stream(
            *(google.answer({"text": word}) for word in WORDS),
            google.answer(usage=google.usage(3, 4)),
            google.answer(finish="STOP"),
        ),
        5,
    ),
    "responses": (responses.scene(responses.message("Hello"), seen=Summary(), deltas=WORDS).stream, 3),
}
"""Words of each provider's, some of them empty, and how many chunks there are.

Where a chunk has a kind (Anthropic, Bedrock, Open Responses), those for words are counted. Of chats
all are: a role comes before the words, an end after them.
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_chunk_is_a_delta_even_without_text(home: ProviderServers, name: str) -> None:
    stream, chunks = WORDLESS[name]
    told = SCENE_MODULES[name].SCENES["text"]
    scene = Scene(stream, b"", told.expected, content_type=told.content_type)
    deltas = of_type(play_scene(home, name, scene), "output_text.delta")
    assert len(deltas) == chunks
    assert "".join(delta["delta"] for delta in deltas) == "Hello"


def two_calls(id: str, first: str, other: str) -> Summary:
    """Say what text and two calls mean."""
    one, another = json.loads(first), json.loads(other)
    return Summary("Let me see.", [(id and f"{id}1", "weather", one), (id and f"{id}2", "time", another)])


A, B = '{"city":"Oslo"}', '{"zone":1}'
CHAT = (
    {"content": "Let me see."},
    openai.calls(openai.call_start(0, "call_1", "weather"), openai.call_start(1, "call_2", "time")),
    openai.calls(openai.call_arguments(0, A)),
    openai.calls(openai.call_arguments(1, B)),
)
TEXT_AND_TWO: dict[str, Scene] = {
    "openai": Scene(openai.stream(*CHAT, finish="tool_calls"), b"", two_calls("call_", A, B)),
    "azure": Scene(azure.stream(*CHAT, finish="tool_calls"), b"", two_calls("call_", A, B)),
    "writer": Scene(writer.stream(*CHAT, finish="tool_calls"), b"", two_calls("call_", A, B)),
    "anthropic": Scene(
        anthropic.stream(
            anthropic.text_deltas(0, "Let me ", "see.")
            + anthropic.call_deltas(1, "toolu_1", "weather", A)
            + anthropic.call_deltas(2, "toolu_2", "time", B),
            "tool_use",
            anthropic.usage(1, 1),
        ),
        b"",
        two_calls("toolu_", A, B),
    ),
    "bedrock": Scene(
        bedrock.stream(
            bedrock.text(0, "Let me ", "see."),
            bedrock.call(1, "tooluse_1", "weather", A),
            bedrock.call(2, "tooluse_2", "time", B),
            reason="tool_use",
        ),
        b"",
        two_calls("tooluse_", A, B),
        content_type=bedrock.EVENTS,
    ),
    "google": Scene(
        google.sse_stream(
            google.answer({"text": "Let me see."}),
            google.answer(google.call("weather", json.loads(A))),
            google.answer(google.call("time", json.loads(B)), finish="STOP"),
        ),
        b"",
        two_calls("", A, B),
    ),
    "ollama": Scene(
        ollama.message_line("Let me see.")
        + ollama.message_line(tool_calls=[ollama.call("weather", json.loads(A))])
        + ollama.message_line(tool_calls=[ollama.call("time", json.loads(B))])
        + ollama.last_line(),
        b"",
        two_calls("", A, B),
        content_type=ollama.LINES,
    ),
    "responses": responses.scene(
        responses.message("Let me see."),
        responses.call("weather", A, "1"),
        responses.call("time", B, "2"),
        seen=two_calls("call_", A, B),
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_text_has_the_first_index_and_calls_the_next(home: ProviderServers, name: str) -> None:
    told = TEXT_AND_TWO[name]
    home.upstreams[name].play(stream_answer(told))
    frames = post_frames(home.address, model=f"{name}/m", tools=TOOLS)
    assert summarize_frames(generation_frames(frames), told.expected)["calls"] == told.expected.calls
    added = of_type(frames, "output_item.added")
    assert [(frame["outputIndex"], frame["item"]["type"]) for frame in added] == [
        (0, "message"),
        (1, "function_call"),
        (2, "function_call"),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scene", ["call", "no_arguments"])
def test_a_call_has_its_providers_id_or_a_stable_one(home: ProviderServers, name: str, scene: str) -> None:
    told = SCENE_MODULES[name].SCENES[scene]
    (call,) = call_frames(play_scene(home, name, told))
    ((given, *_),) = told.expected.calls
    assert call["id"] == call["call_id"] == (given or call["id"])
    assert json.loads(call["arguments"]) == told.expected.calls[0][2]
    assert call["arguments"]


FILTERED: dict[str, Scene] = {
    "openai": Scene(openai.stream({"content": "To"}, finish="content_filter"), b"", Summary("To")),
    "azure": azure.SCENES["filtered"],
    "writer": Scene(writer.stream({"content": "To"}, finish="content_filter"), b"", Summary("To")),
    **{name: SCENE_MODULES[name].SCENES["refusal"] for name in ("anthropic", "bedrock", "google")},
}


@pytest.mark.parametrize("name", FILTERED)
def test_what_a_filter_stops_fails_and_is_not_saved(home: ProviderServers, name: str) -> None:
    frames = play_scene(home, name, FILTERED[name])
    failed = frames[-1]
    assert failed["type"] == "response.failed"
    assert (failed["response"]["status"], failed["response"]["error"]["code"]) == ("failed", "content_filter")


# --- what goes wrong -------------------------------------------------------------------------

CHATTING = json_answer({"error": {"message": "Slow.", "type": "tokens", "param": "n", "code": "busy"}}, 429)
TROUBLES: dict[str, tuple[ScriptedAnswer, Json]] = {
    **dict.fromkeys(
        ("openai", "azure", "writer", "responses"), (CHATTING, {"type": "tokens", "code": "busy", "param": "n"})
    ),
    "anthropic": (
        json_answer({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}}, 429),
        {"type": "rate_limit_error"},
    ),
    "bedrock": (
        json_answer({"message": "Slow."}, 429, x_amzn_errortype="ThrottlingException"),
        {"type": "ThrottlingException", "code": "ThrottlingException"},
    ),
    "google": (
        json_answer({"error": {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED"}}, 429),
        {"type": "RESOURCE_EXHAUSTED", "code": "RESOURCE_EXHAUSTED"},
    ),
    "ollama": (json_answer({"error": "Slow."}, 429), {"type": "too_many_requests", "code": "429"}),
}
"""How each provider refuses, and what of it must be in the frame; Ollama has no word for it but the status."""


@pytest.mark.parametrize("name", NAMES)
def test_an_error_response_is_a_single_error_frame_with_the_providers_message(home: ProviderServers, name: str) -> None:
    answer, told = TROUBLES[name]
    home.upstreams[name].play(answer)
    (frame,) = post_frames(home.address, model=f"{name}/m")
    error = frame["error"]
    assert frame["type"] == "error"
    assert error["message"] == f"{name}: Slow."
    assert told.items() <= error.items()


def test_advice_on_when_to_try_again_is_passed_on(home: ProviderServers) -> None:
    body = {"error": {"message": "Slow.", "type": "tokens"}}
    home.upstreams["openai"].play(json_answer(body, 429, retry_after="7"))
    (frame,) = post_frames(home.address, model="openai/m")
    assert frame["error"]["headers"] == {"retry-after": "7"}


BROKEN: dict[str, tuple[bytes, Json]] = {
    **dict.fromkeys(
        ("openai", "azure", "writer"), (openai.frame({"error": {"message": "Bad.", "type": "oops"}}), {"type": "oops"})
    ),
    "anthropic": (
        anthropic.event({"type": "error", "error": {"type": "overloaded_error", "message": "Bad."}}),
        {"type": "overloaded_error"},
    ),
    "bedrock": (bedrock.exception("modelStreamErrorException", message="Bad."), {"type": "ModelStreamErrorException"}),
    "google": (
        google.sse_stream({"error": {"code": 503, "message": "Bad.", "status": "UNAVAILABLE"}}),
        {"type": "UNAVAILABLE"},
    ),
    "ollama": (ollama.line(error="Bad."), {"type": "model_error"}),
    "responses": (
        b'event: error\ndata: {"type":"error","sequence_number":5,'
        b'"error":{"type":"oops","code":null,"message":"Bad.","param":null}}\n\n',
        {"type": "oops"},
    ),
}
"""How each provider breaks in mid-stream, and what of it must be in the frame."""


def split_emoji_stream(name: str) -> bytes:
    """Return the first words of a provider's text."""
    scene = SCENE_MODULES[name].SCENES["text"]
    if name == "bedrock":
        return bedrock.event("messageStart", role="assistant") + bedrock.delta(0, text="Hello")
    if name == "ollama":
        return ollama.message_line("Hello")
    separator = b"\r\n\r\n" if name == "google" else b"\n\n"
    chunks = scene.stream.split(separator)
    return separator.join(chunks[: len(chunks) // 2]) + separator


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_mid_stream_is_the_last_frame(home: ProviderServers, name: str) -> None:
    trouble, told = BROKEN[name]
    scene = SCENE_MODULES[name].SCENES["text"]
    broken = Scene(split_emoji_stream(name) + trouble, b"", scene.expected, content_type=scene.content_type)
    frames = play_scene(home, name, broken)
    assert of_type(frames, "output_text.delta")
    assert frames[-1]["type"] == "error"
    assert told.items() <= frames[-1]["error"].items()
    assert frames[-1]["error"]["message"] == f"{name}: Bad."


@pytest.mark.parametrize("name", NAMES)
def test_an_error_instead_of_an_answer_is_a_lone_one(home: ProviderServers, name: str) -> None:
    trouble, told = BROKEN[name]
    scene = SCENE_MODULES[name].SCENES["text"]
    (frame,) = play_scene(home, name, Scene(trouble, b"", scene.expected, content_type=scene.content_type))
    assert frame["type"] == "error"
    assert told.items() <= frame["error"].items()


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_is_cut_ends_with_an_error_of_the_stream(home: ProviderServers, name: str) -> None:
    scene = SCENE_MODULES[name].SCENES["text"]
    cut = Scene(split_emoji_stream(name), b"", scene.expected, content_type=scene.content_type)
    frames = play_scene(home, name, cut, cut=True)
    assert frames[-1]["error"]["type"] == "stream_error"
    assert frames[-1]["error"]["message"].startswith(f"{name}: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_ends_cleanly_without_a_reason_is_complete(home: ProviderServers, name: str) -> None:
    scene = SCENE_MODULES[name].SCENES["text"]
    cut = Scene(split_emoji_stream(name), b"", scene.expected, content_type=scene.content_type)
    frames = play_scene(home, name, cut)
    if name == "responses":  # its protocol has an event for the end
        assert frames[-1]["error"]["code"] == "upstream_cut"
    else:
        assert types(frames)[-3:] == ["response.completed", *SAVED]
        assert of_type(frames, "output_text.done")[0]["text"]


def test_a_stream_that_ends_within_a_call_or_before_any_output_is_an_error(home: ProviderServers) -> None:
    call = openai.frame(openai.chunk(openai.calls(openai.call_start(0, "call_1", "weather"))))
    arguments = openai.frame(openai.chunk(openai.calls(openai.call_arguments(0, '{"city":'))))
    for stream in (call + arguments, b"", openai.frame(openai.chunk({"role": "assistant", "content": ""}))):
        home.upstreams["openai"].play(sse_answer(stream))
        frames = post_frames(home.address, model="openai/m", tools=TOOLS)
        assert (frames[-1]["type"], frames[-1]["error"]["code"]) == ("error", "upstream_cut")


def test_a_flat_error_keeps_its_code(home: ProviderServers) -> None:
    flat = b'event: error\ndata: {"type":"error","code":"busy","message":"Bad.","param":"n"}\n\n'
    home.upstreams["responses"].play(sse_answer(flat))
    (frame,) = post_frames(home.address, model="responses/m")
    assert frame["error"] == {"type": "busy", "code": "busy", "param": "n", "message": "responses: Bad."}


@pytest.mark.parametrize("before", [b"", openai.frame({"choices": [{"delta": {"content": "Hi"}}]})])
def test_an_error_with_a_param_keeps_it(home: ProviderServers, before: bytes) -> None:
    body = b'data: {"error":{"message":"Bad.","type":"oops","param":"messages"}}\n\n'
    home.upstreams["openai"].play(sse_answer(before + body))
    *told, frame = post_frames(home.address, model="openai/m")
    assert bool(told) == bool(before)
    assert frame["error"]["param"] == "messages"


def test_a_provider_that_is_not_there_is_an_error_of_the_stream() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        nobody = configure_provider("openai", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with run_server(Settings(providers=[nobody], retries=0)) as address:
            (frame,) = post_frames(address, model="openai/m")
    assert (frame["error"]["type"], frame["error"]["code"]) == ("stream_error", "upstream_unreachable")


def test_a_client_that_leaves_ends_the_request_to_the_provider(home: ProviderServers) -> None:
    upstream = home.upstreams["openai"]
    word = openai.frame(openai.chunk({"content": "So "}))
    upstream.play(sse_answer(word * 100, chunk_size=len(word), pause=0.05))
    before = upstream.disconnects
    body = {"model": "openai/m", "messages": [user_message("Hi")]}
    with http_client(home.address) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        next(pieces)
    wait_until(lambda: upstream.disconnects > before)


# --- threads ---------------------------------------------------------------------------------

THREADED = [name for name in NAMES if name != "responses"]


def test_no_thread_frames_come_in_front_of_an_open_responses_server(home: ProviderServers) -> None:
    frames = play_scene(home, "responses", responses.SCENES["text"])
    assert generation_frames(frames) == frames
    home.upstreams["responses"].play(stream_answer(responses.SCENES["text"]))
    frames = post_frames(home.address, model="responses/m", threadId="thread_1")
    assert generation_frames(frames) == frames
    assert [warning["param"] for warning in frames[-1]["response"]["antiphon:warnings"]] == ["threadId"]
    (frame,) = post_frames(home.address, model="responses/m", operation="load-thread", threadId="x", messages=[])
    assert (frame["error"]["type"], frame["error"]["param"]) == ("invalid_request", "operation")


@pytest.mark.parametrize("name", THREADED)
def test_a_thread_goes_on_after_a_tool_ran(home: ProviderServers, name: str) -> None:
    """Only the tool's message is sent, and the provider reads the whole conversation."""
    first = TEXT_AND_TWO[name]
    home.upstreams[name].play(stream_answer(first), stream_answer(SCENE_MODULES[name].SCENES["text"]))
    question = {"model": f"{name}/m", "tools": TOOLS}
    frames = post_frames(home.address, **question, messages=[user_message("What is the weather?")])
    assert types(frames)[-2:] == SAVED
    thread = frames[-1]["threadId"]
    results = [
        {
            "role": "tool",
            "content": {"status": "fulfilled", "value": {"degrees": 21 + index}},
            "toolCallId": call["call_id"],
            "toolName": call["name"],
        }
        for index, call in enumerate(call_frames(frames))
    ]
    frames = post_frames(home.address, **question, threadId=thread, messages=results)
    assert types(frames)[:3] == [*LOADED, "response.created"]
    assert types(frames)[-3:] == ["response.completed", *SAVED]
    assert frames[-1]["threadId"] == thread
    sent = json.dumps(home.upstreams[name].requests[-1].json)
    for words in ("What is the weather?", "Let me see.", "Oslo", "degrees", "21", "22"):
        assert words in sent
    loaded = post_frames(home.address, model="m", operation="load-thread", threadId=thread, messages=[])
    assert types(loaded) == LOADED
    roles = [message["role"] for message in loaded[-1]["thread"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


SIGNATURES = {
    "anthropic": (anthropic.SIGNATURE, anthropic.REDACTED),
    "bedrock": (bedrock.SIGNATURE,),
    "google": (google.SIGNATURE,),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_thread_keeps_what_the_provider_wants_back(home: ProviderServers, name: str) -> None:
    """A signature of the thinking that led to a call: the client never sees it."""
    thinking = SCENE_MODULES[name].SCENES["thinking_and_call"]
    home.upstreams[name].play(stream_answer(thinking), stream_answer(SCENE_MODULES[name].SCENES["text"]))
    question = {"model": f"{name}/m"} | expected_request(thinking.request)
    frames = post_frames(home.address, **question)
    (call,) = call_frames(frames)
    result = {"role": "tool", "content": "x", "toolCallId": call["call_id"], "toolName": "weather"}
    thread = frames[-1]["threadId"]
    post_frames(home.address, **question, threadId=thread, messages=[result])
    sent = json.dumps(home.upstreams[name].requests[-1].json)
    loaded = post_frames(home.address, model="m", operation="load-thread", threadId=thread, messages=[])
    for signature in SIGNATURES[name]:
        assert signature in sent
        assert signature not in json.dumps([frames, loaded])
    assert "antiphon" not in json.dumps(loaded)


@pytest.mark.parametrize("name", THREADED)
def test_a_thread_is_not_saved_after_an_error(home: ProviderServers, name: str) -> None:
    home.upstreams[name].play(stream_answer(SCENE_MODULES[name].SCENES["text"]), TROUBLES[name][0])
    thread = post_frames(home.address, model=f"{name}/m")[-1]["threadId"]
    frames = post_frames(home.address, model=f"{name}/m", threadId=thread, messages=[user_message("And?")])
    assert types(frames) == [*LOADED, "error"]
    loaded = post_frames(home.address, model="m", operation="load-thread", threadId=thread, messages=[])
    assert len(loaded[-1]["thread"]) == 2


# --- the page about it -----------------------------------------------------------------------

PAGE = (ROOT / "docs" / "hashbrown.md").read_text()


def table_rows(heading: str) -> list[list[str]]:
    """Return the cells of a section's table, row by row."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_names_every_frame() -> None:
    named = [name for cell, _ in table_rows("Frames") for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(FIELDS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scene", "told"), table_rows("In which order"))
def test_the_page_shows_the_order_of_frames(home: ProviderServers, name: str, scene: str, told: str) -> None:
    frames = play_scene(home, name, SCENE_MODULES[name].SCENES[scene])
    # Only Open Responses servers report progress.
    said = [frame["type"] for frame in frames if frame.get("delta") != "" and frame["type"] not in PROGRESS]
    saved = [] if name in THREADED else SAVED
    assert ", ".join(f"`{type}`" for type, _ in groupby([*said, *saved])) == told

"""`stream_text`: frames for an endpoint of one's own, with no server."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import pytest

from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.hashbrown import ThreadError, stream_text
from antiphon.hashbrown.stream import FunctionThreads
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.response import HttpResponse
from tests.adapters.frame_checks import SAVED, Json, call_frames, check, of_type, read, types, user_message
from tests.adapters.provider_servers import NAMES, SCENE_MODULES, configure_provider, stream_answer
from tests.adapters.scenes import anthropic, openai, responses
from tests.scripted_upstream import ScriptedUpstream, json_answer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio

REQUEST: Json = {
    "operation": "generate",
    "model": "some-model",
    "system": "",
    "messages": [user_message("Hi!")],
    "tools": [],
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    """Play a provider."""
    with scripted_upstream() as played:
        yield played


def stream(played: ScriptedUpstream, request: Json | None = None, **options: Any) -> AsyncGenerator[bytes]:
    """Ask OpenAI's dialect, unless an option says otherwise."""
    chosen: Json = {"upstream": "openai", "base_url": f"{played.url}/v1", "api_key": "sk-mine-0123"}
    given = {name: value for name, value in (chosen | options).items() if value is not None}
    return stream_text(REQUEST | (request or {}), **given)


async def collect(chunks: AsyncGenerator[bytes]) -> list[Json]:
    """Return all frames, which keep the contract."""
    frames = read(b"".join([chunk async for chunk in chunks]))
    check(frames)
    # A connection closes only after the last bytes of its answer, which nobody reads any more.
    await asyncio.sleep(0.2)
    return frames


@pytest.mark.parametrize("name", NAMES)
async def test_every_adapter_answers_in_frames(upstream: ScriptedUpstream, name: str) -> None:
    scene = SCENE_MODULES[name].SCENES["text"]
    upstream.play(stream_answer(scene))
    provider = configure_provider(name, upstream.url)
    options: Json = {"base_url": provider.base_url or provider.endpoint, "upstream": name}
    if name == "bedrock":  # needs a region, too
        from antiphon.adapters.registry import make_adapter

        options = {"base_url": None, "upstream": make_adapter(provider)}
    frames = await collect(stream(upstream, **options))
    assert "".join(frame["delta"] for frame in of_type(frames, "output_text.delta")) == scene.expected.text
    assert frames[-1]["type"] == "response.completed"
    assert frames[-1]["response"]["model"] == "some-model"


async def test_the_key_the_headers_and_the_changed_body_are_sent(upstream: ScriptedUpstream) -> None:
    async def change(body: dict[str, object]) -> dict[str, object]:
        await asyncio.sleep(0)
        return body | {"user": "ada"}

    def change_in_place(body: dict[str, object]) -> None:
        body["user"] = "eve"

    for hook in (change, change_in_place):
        upstream.play(stream_answer(openai.SCENES["text"]))
        await collect(stream(upstream, headers={"x-team": "a"}, transform_request=hook))
    first, second = upstream.requests[-2:]
    assert first.headers["authorization"] == "Bearer sk-mine-0123"
    assert first.headers["x-team"] == "a"
    assert (first.json["user"], second.json["user"]) == ("ada", "eve")
    assert first.json["model"] == "some-model"


async def test_without_a_key_no_authorization_is_sent(upstream: ScriptedUpstream) -> None:
    upstream.play(stream_answer(responses.SCENES["text"]))
    await collect(stream(upstream, upstream="responses", api_key=None))
    assert "authorization" not in upstream.requests[-1].headers


class CountingClient(HttpClient):
    """Counts the requests that it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def open(self, request: HttpRequest) -> HttpResponse:
        self.count += 1
        return await super().open(request)


async def test_a_transport_is_used_and_stays_open(upstream: ScriptedUpstream) -> None:
    client = CountingClient()
    for _ in range(2):
        upstream.play(stream_answer(openai.SCENES["text"]))
        await collect(stream(upstream, transport=client))
    assert client.count == 2
    client.close()
    await asyncio.sleep(0)  # in which asyncio closes the socket


async def test_an_adapter_brings_its_own_provider(upstream: ScriptedUpstream) -> None:
    adapter = Anthropic(configure_provider("anthropic", upstream.url))
    upstream.play(stream_answer(anthropic.SCENES["text"]))
    frames = await collect(stream(upstream, upstream=adapter, base_url=None))
    assert frames[-1]["type"] == "response.completed"
    assert upstream.requests[-1].headers["x-api-key"] == "sk-mine-0123"


# --- threads ---------------------------------------------------------------------------------


class Threads:
    """Threads in a dictionary, behind two functions."""

    def __init__(self) -> None:
        self.saved: dict[str, Sequence[Json]] = {}

    def load(self, thread_id: str) -> Sequence[Json]:
        """Return a thread."""
        if thread_id not in self.saved:
            raise ThreadError("No such thread.")
        return self.saved[thread_id]

    async def save(self, messages: Sequence[Json], thread_id: str | None) -> str:
        """Keep a thread."""
        id = thread_id or f"t{len(self.saved)}"
        self.saved[id] = messages
        return id


async def test_a_thread_goes_on_after_a_tool_ran_with_what_the_provider_wants_back(upstream: ScriptedUpstream) -> None:
    threads = Threads()
    options: Json = {"upstream": "anthropic", "base_url": upstream.url} | {
        "load_thread": threads.load,
        "save_thread": threads.save,
    }
    scene = anthropic.SCENES["thinking_and_call"]
    names = ("name", "description", "parameters")
    tools = [{name: tool[name] for name in names if name in tool} for tool in scene.request["tools"]]
    upstream.play(stream_answer(scene), stream_answer(anthropic.SCENES["text"]))
    frames = await collect(stream(upstream, {"tools": tools}, **options))
    assert types(frames)[-2:] == SAVED
    (call,) = call_frames(frames)
    result = {"role": "tool", "content": {"status": "fulfilled", "value": 1}, "toolCallId": call["call_id"]}
    request = {"tools": tools, "threadId": frames[-1]["threadId"], "messages": [result]}
    frames = await collect(stream(upstream, request, **options))
    assert types(frames)[-2:] == SAVED
    assert anthropic.SIGNATURE in upstream.requests[-1].body.decode()
    shown = await collect(stream(upstream, request | {"operation": "load-thread", "messages": []}, **options))
    assert [message["role"] for message in shown[-1]["thread"]] == ["user", "assistant", "tool", "assistant"]
    missing = await collect(stream(upstream, {"threadId": "x"}, **options))
    assert missing[-1] == {"type": "thread-load-failure", "error": "No such thread."}


async def test_two_functions_are_a_storage() -> None:
    threads = Threads()
    storage = FunctionThreads(threads.load, threads.save)
    id = await storage.save([user_message("Hi")], None, tenant="")
    assert await storage.load(id, tenant="") == [user_message("Hi")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"load_thread": Threads().load}, "load_thread is given without save_thread"),
        ({"save_thread": Threads().save}, "save_thread is given without load_thread"),
        (
            {"upstream": "responses", "load_thread": Threads().load, "save_thread": Threads().save},
            "cannot be used with 'responses'",
        ),
        ({"upstream": "azure", "base_url": None}, "'azure' needs its endpoint. Give base_url"),
        ({"upstream": Anthropic(configure_provider("anthropic", "http://x"))}, "base_url is given beside an adapter"),
    ],
)
async def test_arguments_that_do_not_fit_together_are_an_error(
    upstream: ScriptedUpstream, options: Json, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        stream(upstream, **options)


# --- what goes wrong -------------------------------------------------------------------------


async def test_every_error_is_the_last_frame(upstream: ScriptedUpstream) -> None:
    upstream.play(json_answer({"error": {"message": "Bad key sk-mine-0123.", "type": "oops"}}, 401))
    (refused,) = await collect(stream(upstream))
    assert refused["error"] == {"type": "oops", "message": "openai: Bad key [redacted]."}
    (invalid,) = await collect(stream(upstream, {"messages": "Hi"}))
    assert (invalid["error"]["type"], invalid["error"]["param"]) == ("invalid_request", "messages")
    (unreachable,) = await collect(stream(upstream, base_url="http://127.0.0.1:1/v1"))
    assert unreachable["error"]["type"] == "stream_error"


async def test_half_a_surrogate_pair_is_replaced(upstream: ScriptedUpstream) -> None:
    upstream.play(stream_answer(openai.SCENES["text"]))
    frames = await collect(stream(upstream, {"messages": [user_message("a\ud83d")]}))
    assert frames[-1]["type"] == "response.completed"
    assert upstream.requests[-1].json["messages"][-1]["content"] == "a\ufffd"


async def test_closing_the_stream_ends_the_request_to_the_provider(upstream: ScriptedUpstream) -> None:
    word = openai.frame(openai.chunk({"content": "So "}))
    upstream.play(sse_answer(word * 200, chunk_size=len(word), pause=0.05))
    before = upstream.disconnects
    chunks = stream(upstream)
    await anext(chunks)
    await chunks.aclose()
    while upstream.disconnects == before:
        await asyncio.sleep(0.01)

"""Our server in front of eight scripted upstreams, one for each adapter."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from antiphon.adapters.base import Provider
from antiphon.server.settings import Settings
from tests.adapters.scenes import Scene, Summary, anthropic, azure, bedrock, google, ollama, openai, responses, writer
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, scripted_upstream

SCENE_MODULES: dict[str, ModuleType] = {
    "openai": openai,
    "azure": azure,
    "anthropic": anthropic,
    "bedrock": bedrock,
    "google": google,
    "ollama": ollama,
    "writer": writer,
    "responses": responses,
}
NAMES = list(SCENE_MODULES)
ALL_SCENES = [(name, scene) for name, script in SCENE_MODULES.items() for scene in script.SCENES]
SERVER_SCENES = [
    (name, scene)
    for name, scene in ALL_SCENES
    if scene in ("text_and_call", "thinking_and_call", "interleaved_calls", "length")
]
"""The scenes that are sent through the whole server. The decoders are tested with all of them."""


def configure_provider(name: str, url: str) -> Provider:
    """Configure the upstream of an adapter at an address."""
    base = Provider(name=name, adapter=name, base_url=url)
    match name:
        case "openai" | "writer" | "responses":
            return replace_base(base, f"{url}/v1")
        case "azure":
            return Provider(name=name, adapter=name, endpoint=url)
        case "bedrock":
            return Provider(name=name, adapter=name, base_url=url, region="eu-west-1")
        case "google":
            return replace_base(base, f"{url}/v1beta")
        case _:
            return base


def replace_base(base: Provider, url: str) -> Provider:
    """Return a provider at another address."""
    return Provider(name=base.name, adapter=base.adapter, base_url=url)


@dataclass(frozen=True)
class ProviderServers:
    """A server, and the upstreams behind it by name."""

    address: str
    upstreams: dict[str, ScriptedUpstream]


@contextmanager
def serve_providers(names: list[str] = NAMES, **settings: Any) -> Iterator[ProviderServers]:
    """Serve the models of some upstreams."""
    with ExitStack() as stack:
        upstreams = {name: stack.enter_context(scripted_upstream()) for name in names}
        chosen = Settings(
            providers=[configure_provider(name, played.url) for name, played in upstreams.items()],
            keys={name: f"secret-{name}" for name in names},
        )
        address = stack.enter_context(run_server(replace(chosen, **settings)))
        yield ProviderServers(address, upstreams)


def stream_answer(scene: Scene, **options: Any) -> ScriptedAnswer:
    """Play a scene as a stream."""
    return ScriptedAnswer(scene.stream, headers={"content-type": scene.content_type}, **options)


def whole_answer(scene: Scene, **options: Any) -> ScriptedAnswer:
    """Play a scene whole."""
    return ScriptedAnswer(scene.whole, headers={"content-type": "application/json"}, **options)


def summarize(response: dict[str, Any], like: Summary) -> Summary:
    """Return the summary of a response, with ids of calls only where the provider sent some."""
    items = response["output"]
    said = [part for item in items if item["type"] == "message" for part in item["content"]]
    thought = [item for item in items if item["type"] == "reasoning"]
    words = [part["text"] for item in thought for part in [*(item.get("content") or []), *item["summary"]]]
    calls = [item for item in items if item["type"] == "function_call"]
    usage, details = response["usage"], response["incomplete_details"]
    given = [id for id, *_ in like.calls]
    return Summary(
        text="".join(part["text"] for part in said if part["type"] == "output_text"),
        calls=[
            (call["call_id"] if id else "", call["name"], parse_arguments(call))
            for id, call in zip(given, calls, strict=True)
        ],
        reasoning="".join(words),
        refusal="".join(part["refusal"] for part in said if part["type"] == "refusal"),
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cached_tokens=usage["input_tokens_details"]["cached_tokens"],
        reasoning_tokens=usage["output_tokens_details"]["reasoning_tokens"],
        status=response["status"],
        reason=details and details["reason"],
        stop=like.stop,
    )


def parse_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments."""
    import json

    return json.loads(call["arguments"])

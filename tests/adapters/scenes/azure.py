"""Azure's answers: those of OpenAI, with the results of the content filter."""

import json

from antiphon.adapters.azure import Azure
from tests.adapters.scenes import Scene, Summary
from tests.adapters.scenes import openai as plain

ADAPTER = Azure

SAFE = {"hate": {"filtered": False, "severity": "safe"}}
PROMPT = [{"prompt_index": 0, "content_filter_results": SAFE | {"jailbreak": {"filtered": False}}}]
FIRST = {"choices": [], "created": 0, "id": "", "model": "", "object": ""}


def add_content_filter(chunk: dict) -> dict:
    """Add a verdict to every choice; the filter may fail, too."""
    failed = {"error": {"code": "content_filter_error", "message": "The contents are not filtered"}}
    for choice in chunk["choices"]:
        done = choice["finish_reason"] is not None
        choice["content_filter_results"] = failed if done else SAFE
    return chunk


def stream(*deltas: dict, finish: str = "stop", usage: dict = plain.USAGE) -> bytes:
    """Write a stream, from the verdict on the prompt to `[DONE]`."""
    body = plain.frame(FIRST | {"prompt_filter_results": PROMPT})
    for line in plain.stream(*deltas, finish=finish, usage=usage).split(b"\n\n")[:-1]:
        if line.endswith(b"[DONE]"):
            body += line + b"\n\n"
        else:
            body += plain.frame(add_content_filter(json.loads(line.removeprefix(b"data: "))))
    return body


def whole(message: dict, finish: str = "stop", usage: dict = plain.USAGE) -> bytes:
    """Write a whole answer."""
    answer = json.loads(plain.whole(message, finish, usage))
    return json.dumps(add_content_filter(answer) | {"prompt_filter_results": PROMPT}).encode()


FILTERED = {
    "filtered": Scene(
        stream({"content": "To build"}, finish="content_filter"),
        whole({"content": "To build"}, "content_filter"),
        Summary(text="To build", status="incomplete", reason="content_filter", stop="content_filter", **plain.COUNTED),
    )
}

SCENES = plain.scenes(stream, whole) | plain.thinking_scenes(stream, whole) | FILTERED

"""Checks that hold for every stream of Hashbrown frames, whatever the provider."""

import json
import re
from typing import Any

import httpx

from antiphon.wire.hashbrown.frames import HEARTBEAT, Decoder
from tests.adapters.scenes import Summary
from tests.http_client import http_client

Json = dict[str, Any]
Frames = list[Json]

PATH = "/hashbrown/chat"
LOADED = ["thread-load-start", "thread-load-success"]
SAVED = ["thread-save-start", "thread-save-success"]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
IN_ITEM = {"itemId", "outputIndex"}
IN_TEXT = IN_ITEM | {"contentIndex"}
IN_SUMMARY = IN_ITEM | {"summaryIndex"}

FIELDS: dict[str, tuple[set[str], set[str]]] = {
    **{
        f"response.{name}": ({"response"}, set())
        for name in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": ({"outputIndex", "item"}, set()),
    "response.output_item.done": ({"outputIndex", "item"}, set()),
    "response.content_part.added": (IN_TEXT | {"part"}, set()),
    "response.content_part.done": (IN_TEXT | {"part"}, set()),
    "response.output_text.delta": (IN_TEXT | {"delta"}, {"logprobs", "obfuscation"}),
    "response.output_text.done": (IN_TEXT | {"text"}, {"logprobs"}),
    "response.refusal.delta": (IN_TEXT | {"delta"}, set()),
    "response.refusal.done": (IN_TEXT | {"refusal"}, set()),
    "response.reasoning.delta": (IN_TEXT | {"delta"}, {"obfuscation"}),
    "response.reasoning.done": (IN_TEXT | {"text"}, set()),
    "response.reasoning_summary_text.delta": (IN_SUMMARY | {"delta"}, {"obfuscation"}),
    "response.reasoning_summary_text.done": (IN_SUMMARY | {"text"}, set()),
    "response.output_text.annotation.added": (IN_TEXT | {"annotationIndex", "annotation"}, set()),
    "response.function_call_arguments.delta": (IN_ITEM | {"delta"}, {"obfuscation"}),
    "response.function_call_arguments.done": (IN_ITEM | {"arguments"}, set()),
    "error": ({"error"}, set()),
    "thread-load-start": (set(), set()),
    "thread-load-success": (set(), {"thread"}),
    "thread-load-failure": ({"error"}, {"stacktrace"}),
    "thread-save-start": (set(), set()),
    "thread-save-success": ({"threadId"}, set()),
    "thread-save-failure": ({"error"}, {"stacktrace"}),
    HEARTBEAT: (set(), set()),
}
"""Of each frame that Hashbrown's document has, what it must hold and what it may."""

PROGRESS = ["response.queued", "response.in_progress"]
ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}


# --- asking ----------------------------------------------------------------------------------


def user_message(text: str) -> Json:
    """Return a message of the user's."""
    return {"role": "user", "content": text}


def post(address: str, **body: object) -> httpx.Response:
    """Send a request as the published client does; to `demo`, unless the body names a model."""
    least = {"operation": "generate", "model": "demo", "system": "", "messages": [user_message("Hi!")]}
    with http_client(address) as http:
        return http.post(PATH, json=least | {"tools": []} | body)


def read(body: bytes) -> Frames:
    """Read a whole stream of frames."""
    decoder = Decoder()
    frames = decoder.feed(body)
    decoder.close()
    return frames


def post_frames(address: str, **body: object) -> Frames:
    """Ask, and return the frames of an answer that keeps the contract."""
    answer = post(address, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"] == "no-cache"
    frames = read(answer.content)
    check(frames)
    return frames


def expected_request(request: Json) -> Json:
    """Return a scene's request in Hashbrown's fields, as far as there are any."""
    body: Json = {}
    if tools := request.get("tools"):
        names = ("name", "description", "parameters")
        body["tools"] = [{name: tool[name] for name in names if name in tool} for tool in tools]
    if format := request.get("text", {}).get("format"):
        body["responseFormat"] = format["schema"]
    return body


# --- reading ---------------------------------------------------------------------------------


def types(frames: Frames) -> list[str]:
    """Return the types of some frames."""
    return [frame["type"] for frame in frames]


def of_type(frames: Frames, *names: str) -> Frames:
    """Return the frames of some types."""
    return [frame for frame in frames if frame["type"].removeprefix("response.") in names]


def generation_frames(frames: Frames) -> Frames:
    """Return the frames that are not about threads."""
    return [frame for frame in frames if frame["type"].startswith("response.") or frame["type"] == "error"]


def call_frames(frames: Frames) -> Frames:
    """Return the finished calls."""
    items = [frame["item"] for frame in of_type(frames, "output_item.done")]
    return [item for item in items if item["type"] == "function_call"]


def summarize_frames(frames: Frames, like: Summary) -> Json:
    """Return the summary of frames, with ids of calls only where the provider sent some."""
    thought = of_type(frames, "reasoning.delta", "reasoning_summary_text.delta")
    calls = call_frames(frames)
    given = [id for id, *_ in like.calls]
    return {
        "text": "".join(frame["delta"] for frame in of_type(frames, "output_text.delta")),
        "refusal": "".join(frame["delta"] for frame in of_type(frames, "refusal.delta")),
        "reasoning": "".join(frame["delta"] for frame in thought),
        "calls": [
            (call["call_id"] if id else "", call["name"], json.loads(call["arguments"]))
            for id, call in zip(given, calls, strict=True)
        ],
        "end": frames[-1]["type"],
    }


# --- the contract ----------------------------------------------------------------------------


def check(frames: Frames) -> None:
    """Assert everything that a stream of frames must keep to."""
    for frame in frames:
        must, may = FIELDS[frame["type"]]
        fields = frame.keys() - {"type", "sequenceNumber"}
        assert must <= fields <= must | may, frame
    check_threads([name for name in types(frames) if name != HEARTBEAT])
    told = generation_frames(frames)
    if told:
        check_lifecycle(told)
        check_text(told)
        check_calls(told)


def check_threads(names: list[str]) -> None:
    """Load first, save last, and nothing after a failure to load."""
    assert " ".join(kinds := [_kind(name) for name in names]) == " ".join(
        sorted(kinds, key=["load", "life", "save"].index)
    )
    if "thread-load-failure" in names:
        assert names == ["thread-load-start", "thread-load-failure"]
    if "error" in names:
        assert names[-1] == "error"


def _kind(name: str) -> str:
    return name.split("-")[1] if name.startswith("thread-") else "life"


def check_lifecycle(told: Frames) -> None:
    """One beginning, one end; a lone error where nothing was begun."""
    names = types(told)
    assert [name for name in names if name in ENDS] == [names[-1]]
    assert names == ["error"] or (names[0] == "response.created" and names.count(names[0]) == 1)
    progress = [name for name in names if name in PROGRESS]
    assert progress == names[1 : 1 + len(progress)]
    assert progress == sorted(set(progress), key=PROGRESS.index)
    numbers = [frame["sequenceNumber"] for frame in told if "sequenceNumber" in frame]
    assert numbers == sorted(set(numbers))
    if names[-1] == "error":
        assert told[-1]["error"].keys() >= {"type", "message"}
        assert all(value for value in told[-1]["error"].values())
    else:
        assert len(numbers) == len(told)
        ids = {frame["response"]["id"] for frame in told if "response" in frame}
        assert len(ids) == 1


def check_text(told: Frames) -> None:
    """One text, under one UUID, at the first place of the first item."""
    text = of_type(told, "output_text.delta", "output_text.done")
    places = {(frame["itemId"], frame["outputIndex"], frame["contentIndex"]) for frame in text}
    assert len(places) <= 1
    for id, *place in places:
        assert UUID.fullmatch(id)
        assert place == [0, 0]
    if text and told[-1]["type"] != "error":
        *deltas, done = text
        assert done["type"] == "response.output_text.done"
        assert done["text"] == "".join(delta["delta"] for delta in deltas)


def check_calls(told: Frames) -> None:
    """Each call in order, under one id and an index of its own."""
    items = of_type(told, "output_item.added")
    indexes = [frame["outputIndex"] for frame in items]
    assert len(indexes) == len(set(indexes))
    for begun in items:
        item, index = begun["item"], begun["outputIndex"]
        assert (item["type"] == "message") == (index == 0)
        if item["type"] == "function_call":
            check_call(item, [frame for frame in told if frame.get("outputIndex") == index])


def check_call(item: Json, own: Frames) -> None:
    """Added, deltas that are not empty, arguments done, item done."""
    assert item["id"] == item["call_id"]
    assert item["name"]
    deltas = of_type(own, "function_call_arguments.delta")
    assert all(delta["delta"] for delta in deltas)
    assert {frame.get("itemId", item["id"]) for frame in own} == {item["id"]}
    names = [name.removeprefix("response.") for name in types(own)]
    grown = ["output_item.added", *["function_call_arguments.delta"] * len(deltas)]
    if names[-1] == "output_item.done" and own[-1]["item"]["status"] == "incomplete":
        assert names == [*grown, "output_item.done"]
    elif len(own) > len(grown):  # or else the stream broke off
        assert names == [*grown, "function_call_arguments.done", "output_item.done"]
        arguments = own[-2]["arguments"]
        assert arguments == "".join(delta["delta"] for delta in deltas)
        assert own[-1]["item"] | {"status": 0} == item | {"arguments": arguments, "status": 0}

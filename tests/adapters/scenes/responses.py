"""What a server of the protocol says, in the words of the one that most people call: OpenAI's.

Events are written here by hand and not by our own synthesizer, so that both sides can be wrong only
on their own. `events_of` tells an item from `added` to `done`; `stream` numbers what it is given.
"""

import json
from collections.abc import Iterable

from antiphon.adapters.open_responses.adapter import OpenResponses
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary

ADAPTER = OpenResponses
PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo"}
REPORT = '{"city":"Paris","degrees":21}'
SEALED = "gAAAAABqX1a78BDqk_J4uGoxtDucvs8h"


def response(*output: dict, **changes: object) -> dict:
    """Write a response as OpenAI does."""
    return {
        "id": "resp_68af4030baa48193b0b43b4c2a176a1a",
        "object": "response",
        "created_at": 1756315696,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "gpt-5.4",
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage(26, 5),
        "user": None,
        "metadata": {},
    } | changes


def usage(read: int, made: int, cached: int = 0, thought: int = 0) -> dict:
    """Write how many tokens it took."""
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": read + made,
    }


def message(*texts: str, id: str = "msg_1", status: str = "completed", **changes: object) -> dict:
    """Write a message."""
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": t} for t in texts]
    fields = {"type": "message", "role": "assistant", "content": content}
    return {"id": id, "status": status, **fields, **changes}


def call(name: str, arguments: str, id: str, status: str = "completed") -> dict:
    """Write a call; its call id is made of its id."""
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "status": status,
        "arguments": arguments,
        "call_id": f"call_{id}",
        "name": name,
    }


def reasoning(summary: str, id: str = "rs_1", **changes: object) -> dict:
    """Write sealed thinking, of which only a summary can be read."""
    pieces = [{"type": "summary_text", "text": summary}] if summary else []
    return {"id": id, "type": "reasoning", "encrypted_content": SEALED, "summary": pieces, **changes}


def event(type: str, **fields: object) -> dict:
    """Write an event that has no number yet."""
    return {"type": f"response.{type}", **fields}


def events_of(item: dict, index: int = 0, deltas: list[str] | None = None) -> list[dict]:
    """Tell an item, its first text in deltas."""
    place = {"item_id": item["id"], "output_index": index}
    told: list[dict] = [item_added(item, index)]
    if item["type"] == "function_call":
        pieces = deltas or [item["arguments"]]
        told += [event("function_call_arguments.delta", **place, delta=p) for p in pieces]
        told.append(event("function_call_arguments.done", **place, arguments=item["arguments"]))
    for number, part in enumerate(item.get("content", [])):
        told += content_events(part, {**place, "content_index": number}, deltas)
    for number, part in enumerate(item.get("summary", [])):
        where = {**place, "summary_index": number}
        told += [
            event("reasoning_summary_part.added", **where, part={**part, "text": ""}),
            event("reasoning_summary_text.delta", **where, delta=part["text"]),
            event("reasoning_summary_text.done", **where, text=part["text"]),
            event("reasoning_summary_part.done", **where, part=part),
        ]
    return [*told, event("output_item.done", output_index=index, item=item)]


def item_added(item: dict, index: int) -> dict:
    """Announce an item."""
    empty = {
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "reasoning": {"summary": []},
    }
    begun = item | empty.get(item["type"], {"status": "in_progress"})
    return event("output_item.added", output_index=index, item=begun)


def content_events(part: dict, place: dict, deltas: list[str] | None = None) -> list[dict]:
    """Tell a piece of content."""
    name = {"output_text": "output_text", "refusal": "refusal", "reasoning_text": "reasoning_text"}[part["type"]]
    word = "refusal" if name == "refusal" else "text"
    extra = {"logprobs": []} if name == "output_text" else {}
    empty = {**part, word: ""} | ({"annotations": []} if name == "output_text" else {})
    padding = {"obfuscation": "xxxxx"} if name == "output_text" else {}
    told = [
        event("content_part.added", **place, part=empty),
        *(event(f"{name}.delta", **place, delta=d, **extra, **padding) for d in deltas or [part[word]]),
    ]
    notes = enumerate(part.get("annotations", []))
    added = "output_text.annotation.added"
    told += [event(added, **place, annotation_index=n, annotation=note) for n, note in notes]
    told.append(event(f"{name}.done", **place, **{word: part[word]}, **extra))
    return [*told, event("content_part.done", **place, part=part)]


def stream(middle: Iterable[dict], end: dict, kind: str | None = None) -> bytes:
    """Write a whole stream: how it begins, what it tells, how it ends."""
    begun = end | {"output": [], "status": "in_progress", "usage": None, "error": None, "incomplete_details": None}
    events = [
        event("created", response=begun),
        event("in_progress", response=begun),
        *middle,
        event(kind or end["status"], response=end),
    ]
    return sse_bytes(events)


def sse_bytes(events: Iterable[dict]) -> bytes:
    """Number events, and write them."""
    frames = [
        f"event: {fields['type']}\ndata: "
        + json.dumps({**fields, "sequence_number": number}, ensure_ascii=False)
        + "\n\n"
        for number, fields in enumerate(events)
    ]
    return "".join(frames).encode()


def scene(
    *items: dict, seen: Summary, deltas: list[str] | None = None, request: dict | None = None, **changes: object
) -> Scene:
    """Make a scene in which items are told one after the other."""
    end = response(*items, **changes)
    middle = [
        event
        for index, item in enumerate(items)
        for event in events_of(item, index, deltas if index == len(items) - 1 else None)
    ]
    return Scene(stream(middle, end), json.dumps(end).encode(), seen, request or {})


def expect(*args: object, **changes: object) -> Summary:
    """Say what is seen, with the usage that most scenes have."""
    counts = {"input_tokens": 26, "output_tokens": 5, "stop": "completed"}
    return Summary(*args, **(counts | changes))  # type: ignore[arg-type]


SAID = call("weather", '{"city":"Paris"}', "1")
ALSO = call("weather", '{"city":"Oslo"}', "2")
TOGETHER = [
    item_added(SAID, 0),
    event("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"city":'),
    item_added(ALSO, 1),
    event("function_call_arguments.delta", item_id="fc_2", output_index=1, delta='{"city":'),
    event("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='"Paris"}'),
    event("function_call_arguments.delta", item_id="fc_2", output_index=1, delta='"Oslo"}'),
    *events_of(SAID, 0)[-2:],
    *events_of(ALSO, 1)[-2:],
]
BOTH = [("call_1", "weather", PARIS), ("call_2", "weather", OSLO)]

SCENES = {
    "text": scene(message("Hello, 🎵!"), deltas=["Hello", ", ", "🎵", "!"], seen=expect("Hello, 🎵!")),
    "call": scene(
        SAID,
        deltas=['{"city"', ':"Paris"}'],
        seen=expect(calls=[("call_1", "weather", PARIS)]),
        request={"tools": [TOOL]},
    ),
    "no_arguments": scene(
        call("time", "{}", "1"), seen=expect(calls=[("call_1", "time", {})]), request={"tools": [TIME]}
    ),
    "parallel_calls": scene(SAID, ALSO, seen=expect(calls=BOTH), request={"tools": [TOOL]}),
    "interleaved_calls": Scene(
        stream(TOGETHER, response(SAID, ALSO)),
        json.dumps(response(SAID, ALSO)).encode(),
        expect(calls=BOTH),
        {"tools": [TOOL]},
    ),
    "text_and_call": scene(
        message("Let me see.", phase="commentary"),
        SAID,
        seen=expect("Let me see.", [("call_1", "weather", PARIS)]),
        request={"tools": [TOOL]},
    ),
    "thinking_and_call": scene(
        reasoning("Paris is a city."),
        SAID,
        seen=expect(
            calls=[("call_1", "weather", PARIS)], reasoning="Paris is a city.", output_tokens=40, reasoning_tokens=32
        ),
        request={"tools": [TOOL], "reasoning": {"effort": "high", "summary": "auto"}},
        usage=usage(26, 40, thought=32),
    ),
    "structured": scene(
        message(REPORT), deltas=[REPORT[:9], REPORT[9:]], seen=expect(REPORT), request={"text": FORMAT}
    ),
    "tools_and_structured": scene(message(REPORT), seen=expect(REPORT), request={"text": FORMAT, "tools": [TOOL]}),
    "refusal": scene(
        message(content=[{"type": "refusal", "refusal": "I cannot help with that."}]),
        deltas=["I cannot ", "help with that."],
        seen=expect(refusal="I cannot help with that."),
    ),
    "length": scene(
        message("Once upon a", status="incomplete"),
        deltas=["Once upon", " a"],
        seen=expect(
            "Once upon a", output_tokens=16, status="incomplete", reason="max_output_tokens", stop="max_output_tokens"
        ),
        request={"max_output_tokens": 16},
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        usage=usage(26, 16),
    ),
    "cached": scene(
        message("Hello"),
        seen=expect("Hello", input_tokens=2006, output_tokens=300, cached_tokens=1920, reasoning_tokens=256),
        usage=usage(2006, 300, cached=1920, thought=256),
    ),
}

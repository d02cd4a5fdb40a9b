"""Ollama's answers: lines of JSON.

There is no refusal in this dialect: a model that will not answer says so in its text. There are no
cached and no reasoning tokens either; `cached` is an answer whose prompt was not read again at all,
so that its count is left out.
"""

import json

from antiphon.adapters.ollama import Ollama
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary

ADAPTER = Ollama
LINES = "application/x-ndjson"
WHEN = "2026-11-15T10:00:00.123456789Z"


def line(**fields: object) -> bytes:
    """Write one line."""
    start = {"model": "qwen3:8b", "created_at": WHEN}
    return json.dumps(start | fields, ensure_ascii=False).encode() + b"\n"


def message_line(content: str = "", **fields: object) -> bytes:
    """Write a line in the middle of an answer."""
    return line(message={"role": "assistant", "content": content, **fields}, done=False)


def last_line(message: dict | None = None, reason: str = "stop", read: int = 26, made: int = 5) -> bytes:
    """Write the last line; Go leaves out counts that are zero."""
    counts = {"prompt_eval_count": read, "eval_count": made}
    return line(
        message={"role": "assistant", "content": "", **(message or {})},
        done=True,
        done_reason=reason,
        total_duration=4_883_583_458,
        load_duration=1_334_875,
        **{name: count for name, count in counts.items() if count},
        prompt_eval_duration=342_546_000,
        eval_duration=4_535_599_000,
    )


def call(name: str, arguments: dict, id: str = "", index: int | None = 0) -> dict:
    """Write a call as Ollama does: an index that starts again, an id if the server is new."""
    function = {"index": index, "name": name, "arguments": arguments}
    if index is None:
        del function["index"]
    return {"id": id, "function": function} if id else {"function": function}


PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo"}
REPORT = '{"city":"Paris","degrees":21}'

SCENES = {
    "text": Scene(
        message_line("Hello") + message_line(", ") + message_line("🎵") + message_line("!") + last_line(),
        last_line({"content": "Hello, 🎵!"}),
        Summary("Hello, 🎵!", input_tokens=26, output_tokens=5, stop="stop"),
        content_type=LINES,
    ),
    "call": Scene(
        message_line(tool_calls=[call("weather", PARIS, "call_1")]) + last_line(),
        last_line({"tool_calls": [call("weather", PARIS, "call_1")]}),
        Summary(calls=[("call_1", "weather", PARIS)], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TOOL]},
        LINES,
    ),
    "no_arguments": Scene(
        message_line(tool_calls=[call("time", {})]) + last_line(),
        last_line({"tool_calls": [call("time", {})]}),
        Summary(calls=[("", "time", {})], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TIME]},
        LINES,
    ),
    "parallel_calls": Scene(
        message_line(tool_calls=[call("weather", PARIS)])
        + message_line(tool_calls=[call("weather", OSLO)])
        + last_line(),
        last_line({"tool_calls": [call("weather", PARIS), call("weather", OSLO)]}),
        Summary(calls=[("", "weather", PARIS), ("", "weather", OSLO)], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TOOL]},
        LINES,
    ),
    "interleaved_calls": Scene(
        message_line(tool_calls=[call("weather", PARIS, index=None), call("time", {}, index=None)]) + last_line(),
        last_line({"tool_calls": [call("weather", PARIS), call("time", {}, index=1)]}),
        Summary(calls=[("", "weather", PARIS), ("", "time", {})], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TOOL, TIME]},
        LINES,
    ),
    "text_and_call": Scene(
        message_line("Let me ")
        + message_line("see.")
        + message_line(tool_calls=[call("weather", PARIS, "call_1")])
        + last_line(),
        last_line({"content": "Let me see.", "tool_calls": [call("weather", PARIS, "call_1")]}),
        Summary("Let me see.", [("call_1", "weather", PARIS)], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TOOL]},
        LINES,
    ),
    "thinking_and_call": Scene(
        message_line(thinking="Paris is ")
        + message_line(thinking="a city.")
        + message_line(tool_calls=[call("weather", PARIS, "call_1")])
        + last_line(),
        last_line({"thinking": "Paris is a city.", "tool_calls": [call("weather", PARIS, "call_1")]}),
        Summary(
            calls=[("call_1", "weather", PARIS)],
            reasoning="Paris is a city.",
            input_tokens=26,
            output_tokens=5,
            stop="stop",
        ),
        {"tools": [TOOL], "reasoning": {"effort": "high"}},
        LINES,
    ),
    "structured": Scene(
        message_line('{"city":"Paris",') + message_line('"degrees":21}') + last_line(),
        last_line({"content": REPORT}),
        Summary(REPORT, input_tokens=26, output_tokens=5, stop="stop"),
        {"text": FORMAT},
        LINES,
    ),
    "tools_and_structured": Scene(
        message_line(REPORT[:10]) + message_line(REPORT[10:]) + last_line(),
        last_line({"content": REPORT}),
        Summary(REPORT, input_tokens=26, output_tokens=5, stop="stop"),
        {"text": FORMAT, "tools": [TOOL]},
        LINES,
    ),
    "length": Scene(
        message_line("Once upon") + message_line(" a") + last_line(reason="length", made=16),
        last_line({"content": "Once upon a"}, reason="length", made=16),
        Summary(
            "Once upon a",
            input_tokens=26,
            output_tokens=16,
            status="incomplete",
            reason="max_output_tokens",
            stop="length",
        ),
        {"max_output_tokens": 16},
        LINES,
    ),
    "cached": Scene(
        message_line("Hello") + last_line(read=0),
        last_line({"content": "Hello"}, read=0),
        Summary("Hello", input_tokens=0, output_tokens=5, stop="stop"),
        content_type=LINES,
    ),
}

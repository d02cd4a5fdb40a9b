"""What Ollama says: lines of JSON.

There is no refusal in this dialect: a model that will not answer says so in its text. There are no
cached and no reasoning tokens either; `cached` is an answer whose prompt was not read again at all,
so that its count is left out.
"""

import json

from antiphon.adapters.ollama import Ollama
from tests.adapters.scripts import FORMAT, TIME, TOOL, Scene, Seen

ADAPTER = Ollama
LINES = "application/x-ndjson"
WHEN = "2026-11-15T10:00:00.123456789Z"


def line(**fields: object) -> bytes:
    """Write one line."""
    start = {"model": "qwen3:8b", "created_at": WHEN}
    return json.dumps(start | fields, ensure_ascii=False).encode() + b"\n"


def said(content: str = "", **fields: object) -> bytes:
    """Write a line in the middle of an answer."""
    return line(message={"role": "assistant", "content": content, **fields}, done=False)


def ended(
    message: dict | None = None, reason: str = "stop", read: int = 26, made: int = 5
) -> bytes:
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
        said("Hello") + said(", ") + said("🎵") + said("!") + ended(),
        ended({"content": "Hello, 🎵!"}),
        Seen("Hello, 🎵!", input_tokens=26, output_tokens=5, stop="stop"),
        content_type=LINES,
    ),
    "call": Scene(
        said(tool_calls=[call("weather", PARIS, "call_1")]) + ended(),
        ended({"tool_calls": [call("weather", PARIS, "call_1")]}),
        Seen(calls=[("call_1", "weather", PARIS)], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TOOL]},
        LINES,
    ),
    "no_arguments": Scene(
        said(tool_calls=[call("time", {})]) + ended(),
        ended({"tool_calls": [call("time", {})]}),
        Seen(calls=[("", "time", {})], input_tokens=26, output_tokens=5, stop="stop"),
        {"tools": [TIME]},
        LINES,
    ),
    "parallel_calls": Scene(
        said(tool_calls=[call("weather", PARIS)])
        + said(tool_calls=[call("weather", OSLO)])
        + ended(),
        ended({"tool_calls": [call("weather", PARIS), call("weather", OSLO)]}),
        Seen(
            calls=[("", "weather", PARIS), ("", "weather", OSLO)],
            input_tokens=26,
            output_tokens=5,
            stop="stop",
        ),
        {"tools": [TOOL]},
        LINES,
    ),
    "interleaved_calls": Scene(
        said(tool_calls=[call("weather", PARIS, index=None), call("time", {}, index=None)])
        + ended(),
        ended({"tool_calls": [call("weather", PARIS), call("time", {}, index=1)]}),
        Seen(
            calls=[("", "weather", PARIS), ("", "time", {})],
            input_tokens=26,
            output_tokens=5,
            stop="stop",
        ),
        {"tools": [TOOL, TIME]},
        LINES,
    ),
    "text_and_call": Scene(
        said("Let me ")
        + said("see.")
        + said(tool_calls=[call("weather", PARIS, "call_1")])
        + ended(),
        ended({"content": "Let me see.", "tool_calls": [call("weather", PARIS, "call_1")]}),
        Seen(
            "Let me see.",
            [("call_1", "weather", PARIS)],
            input_tokens=26,
            output_tokens=5,
            stop="stop",
        ),
        {"tools": [TOOL]},
        LINES,
    ),
    "thinking_and_call": Scene(
        said(thinking="Paris is ")
        + said(thinking="a city.")
        + said(tool_calls=[call("weather", PARIS, "call_1")])
        + ended(),
        ended({"thinking": "Paris is a city.", "tool_calls": [call("weather", PARIS, "call_1")]}),
        Seen(
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
        said('{"city":"Paris",') + said('"degrees":21}') + ended(),
        ended({"content": REPORT}),
        Seen(REPORT, input_tokens=26, output_tokens=5, stop="stop"),
        {"text": FORMAT},
        LINES,
    ),
    "tools_and_structured": Scene(
        said(REPORT[:10]) + said(REPORT[10:]) + ended(),
        ended({"content": REPORT}),
        Seen(REPORT, input_tokens=26, output_tokens=5, stop="stop"),
        {"text": FORMAT, "tools": [TOOL]},
        LINES,
    ),
    "length": Scene(
        said("Once upon") + said(" a") + ended(reason="length", made=16),
        ended({"content": "Once upon a"}, reason="length", made=16),
        Seen(
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
        said("Hello") + ended(read=0),
        ended({"content": "Hello"}, read=0),
        Seen("Hello", input_tokens=0, output_tokens=5, stop="stop"),
        content_type=LINES,
    ),
}

"""The thinking of each Claude model: how it is requested, and how it is sent back."""

from typing import cast

import anthropic
import pytest

from antiphon.adapters.anthropic.models import Claude, lookup_claude
from antiphon.adapters.base import Capabilities
from antiphon.protocol.struct import to_builtins
from tests.adapters.anthropic.builders import (
    HIGH_EFFORT,
    REQUIRED_TOOL,
    TOOL_LOOP,
    anthropic_message,
    ask,
    user_text,
    warning_codes,
)
from tests.adapters.run_adapter import decode_response
from tests.adapters.scenes import TOOL
from tests.adapters.scenes.anthropic import (
    OSLO_CALL,
    OSLO_JSON,
    REDACTED,
    SIGNATURE,
    THOUGHT,
    call_block,
    call_deltas,
    redacted_thinking,
    stream,
    text_block,
    text_deltas,
    thinking_deltas,
    usage,
)

SUMMARY = {"reasoning": {"summary": "auto"}}
QUIET_SUMMARY = {"reasoning": {"effort": "none", "summary": "auto"}}
ANY_JSON = {"text": {"format": {"type": "json_object"}}}
SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "fields", "thinking", "effort", "warned"),
    [
        ("claude-3-haiku-20240307", HIGH_EFFORT, None, None, True),
        ("claude-3-5-haiku-20241022", HIGH_EFFORT | REQUIRED_TOOL, None, None, True),
        ("claude-3-5-haiku-20241022", {"reasoning": {"summary": "auto"}}, None, None, True),
        ("claude-3-5-haiku-20241022", {"reasoning": {"effort": "none"}}, None, None, False),
        ("claude-3-7-sonnet-20250219", HIGH_EFFORT, {"type": "enabled", "budget_tokens": 16384}, None, False),
        ("claude-haiku-4-5", HIGH_EFFORT, {"type": "enabled", "budget_tokens": 16384}, None, False),
        ("claude-haiku-4-5", {}, None, None, False),
        ("claude-haiku-4-5", HIGH_EFFORT | REQUIRED_TOOL, None, None, True),
        ("claude-opus-4-6", {"reasoning": {"effort": "minimal"}}, {"type": "adaptive"}, "low", False),
        ("claude-opus-4-6", {"reasoning": {"effort": "xhigh"}}, {"type": "adaptive"}, "high", True),
        ("claude-opus-4-8", {"reasoning": {"effort": "xhigh"}}, {"type": "adaptive"}, "xhigh", False),
        ("claude-opus-4-8", {"reasoning": {"effort": "none"}}, None, None, False),
        ("claude-opus-4-8", {"reasoning": {"summary": "auto"}}, None, None, True),
        ("claude-haiku-4-5", {"reasoning": {"summary": "auto"}}, None, None, True),
        ("claude-opus-5", {}, None, None, False),
        ("claude-opus-5", {"reasoning": {"effort": "none"}}, {"type": "disabled"}, None, False),
        (
            "claude-opus-5",
            {"reasoning": {"summary": "auto"}},
            {"type": "adaptive", "display": "summarized"},
            None,
            False,
        ),
        ("claude-opus-5", REQUIRED_TOOL, {"type": "disabled"}, None, False),
        ("claude-opus-5", HIGH_EFFORT | REQUIRED_TOOL, {"type": "disabled"}, None, True),
        ("claude-sonnet-5-5", {"reasoning": {"effort": "none"}}, {"type": "between_tools"}, None, False),
        ("claude-opus-5-5", {"reasoning": {"effort": "none"}}, None, "low", True),
        ("claude-opus-5-5", HIGH_EFFORT, None, "high", False),
        ("claude-fable-5", HIGH_EFFORT | REQUIRED_TOOL, None, "high", False),
        ("claude-haiku-4-5", SUMMARY | REQUIRED_TOOL, None, None, True),
        ("claude-haiku-4-5", QUIET_SUMMARY, None, None, True),
        ("claude-opus-5", SUMMARY | REQUIRED_TOOL, {"type": "disabled"}, None, True),
        ("claude-opus-5", QUIET_SUMMARY, {"type": "disabled"}, None, True),
        ("claude-opus-5", SUMMARY | ANY_JSON, {"type": "disabled"}, None, True),
        ("claude-fable-5", SUMMARY | REQUIRED_TOOL, None, None, True),
        ("claude-fable-5", SUMMARY | ANY_JSON, None, None, True),
        ("claude-opus-5-5", SUMMARY | ANY_JSON, SHOWN, None, False),
        ("qwen-claude", HIGH_EFFORT, {"type": "adaptive"}, "high", False),
    ],
)
def test_thinking_is_requested_by_the_rules_of_the_model(
    model: str, fields: dict, thinking: dict | None, effort: str | None, warned: bool
):
    request = ask(model, **fields)
    body = request.body
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert warning_codes(request) == ([("reasoning_changed", "reasoning")] if warned else [])


@pytest.mark.parametrize(
    ("room", "budget", "warned"),
    [(None, 16384, False), (20000, 16384, False), (4000, 2000, True), (1025, 1024, True), (1024, 0, True)],
)
def test_a_budget_stays_below_the_output_limit(room: int | None, budget: int, warned: bool):
    request = ask("claude-haiku-4-5", max_output_tokens=room, **HIGH_EFFORT)
    thinking = {"type": "enabled", "budget_tokens": budget} if budget else None
    assert request.body.get("thinking") == thinking
    assert request.body["max_tokens"] == (room or 8192 + 16384)
    assert warning_codes(request) == ([("reasoning_changed", "reasoning")] if warned else [])


def test_the_configured_output_limit_is_used():
    capabilities = Capabilities(max_output_tokens=64000)
    assert ask(capabilities=capabilities, **HIGH_EFFORT).body["max_tokens"] == 64000


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-haiku-4-5"])
def test_thinking_is_sent_back_unchanged_and_in_place(model: str):
    came = (
        thinking_deltas(0, SIGNATURE, "Where is Oslo? ", "In Norway.")
        + redacted_thinking(1, REDACTED)
        + text_deltas(2, "One moment.")
        + call_deltas(3, *OSLO_CALL[:2], *OSLO_JSON)
        + thinking_deltas(4, "second")
        + call_deltas(5, "toolu_02", "weather", '{"city":"Rome"}')
    )
    first = ask(model, tools=[TOOL], **HIGH_EFFORT)
    response = decode_response(first, stream(came, "tool_use", usage(1, 1)))
    output = [
        # A client may drop the text and keep the encrypted content.
        {name: item[name] for name in item if name != "content" or item["type"] != "reasoning"}
        for item in cast("list[dict]", list(map(to_builtins, response.output)))
    ]
    results = [{"type": "function_call_output", "call_id": id, "output": "4"} for id in ("toolu_01", "toolu_02")]
    again = ask(model, tools=[TOOL], input=[user_text("Hello"), *output, *results], **HIGH_EFFORT)
    assert again.body["messages"][1] == anthropic_message(
        {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
        {"type": "redacted_thinking", "data": REDACTED},
        text_block("One moment."),
        call_block(*OSLO_CALL),
        {"type": "thinking", "thinking": "", "signature": "second"},
        call_block("toolu_02", "weather", {"city": "Rome"}),
        role="assistant",
    )
    assert again.body["thinking"] == first.body["thinking"]
    assert again.warnings == []


def test_thinking_without_encrypted_content_is_left_out():
    request = ask(input=TOOL_LOOP)
    assert request.body["messages"][1] == anthropic_message(call_block(*OSLO_CALL), role="assistant")
    assert request.warnings == []


@pytest.mark.parametrize("encrypted", ["rubbish", "{}", "[]", '{"signature": 5}', '{"redacted": ""}', "\ud83d"])
def test_unknown_encrypted_content_is_left_out(encrypted: str):
    thought = {"type": "reasoning", "summary": [], "encrypted_content": encrypted}
    request = ask(input=[TOOL_LOOP[0], thought, *TOOL_LOOP[2:]])
    assert request.body["messages"][1] == anthropic_message(call_block(*OSLO_CALL), role="assistant")


def test_no_budget_is_sent_if_the_turns_own_thinking_is_missing():
    request = ask("claude-haiku-4-5", input=TOOL_LOOP, tools=[TOOL], **HIGH_EFFORT)
    assert "thinking" not in request.body
    assert warning_codes(request) == [("reasoning_changed", "reasoning")]
    later = ask("claude-haiku-4-5", input=[*TOOL_LOOP, user_text("Thanks")], tools=[TOOL], **HIGH_EFFORT)
    assert later.body["thinking"] == {"type": "enabled", "budget_tokens": 16384}


def test_adaptive_thinking_works_without_earlier_thinking():
    request = ask("claude-opus-4-8", input=TOOL_LOOP, tools=[TOOL], **HIGH_EFFORT)
    assert request.body["thinking"] == {"type": "adaptive"}
    assert request.warnings == []


def test_thinking_at_the_end_of_a_turn_is_left_out():
    thought = {"type": "reasoning", "summary": [], "encrypted_content": '{"signature":"s"}'}
    spoken = {"role": "assistant", "content": "Well"}
    request = ask(input=[user_text("Hello"), spoken, thought, user_text("Go on")])
    assert request.body["messages"][1] == anthropic_message(text_block("Well"), role="assistant")
    alone = ask(input=[user_text("Hello"), thought, user_text("Go on")])
    assert alone.body["messages"] == [anthropic_message(text_block("Hello"), text_block("Go on"))]


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("claude-opus-4@20250514", "claude-opus-4-0"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("claude-3-7-sonnet-20250219", "claude-sonnet-4-0"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-haiku-20240307"),
        ("anthropic.claude-v2:1", "claude-2.1"),
        ("anthropic.claude-instant-v1", "claude-instant-1.2"),
        ("claude-opus-4.8", "claude-opus-4-8"),
        ("claude-mythos-preview", "claude-mythos-5"),
    ],
)
def test_a_model_is_recognized_by_all_of_its_names(name: str, same_as: str):
    assert lookup_claude(name) == lookup_claude(same_as)


@pytest.mark.parametrize("name", ["anthropic.claude-v2", "claude-instant-1.2", "claude-2.1"])
def test_models_before_3_7_do_not_think(name: str):
    assert not lookup_claude(name).supports_thinking


def test_every_model_of_the_sdk_is_recognized():
    literal = anthropic.types.Model.__args__[0]  # type: ignore[attr-defined]
    assert all(lookup_claude(name) != Claude() for name in literal.__args__)

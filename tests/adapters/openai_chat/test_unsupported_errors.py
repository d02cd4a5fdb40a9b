"""Error messages of chat servers that name a missing feature."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.base import Adapter
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.openai_chat.adapter import ChatCompletions
from antiphon.adapters.openai_chat.servers import requires_responses, unsupported_feature
from tests.adapters.openai_chat.error_messages import (
    NO_CHAT,
    NO_EFFORT,
    NO_SCHEMA,
    NO_TOOL_CHOICE,
    OLD_API_VERSION,
    ONLY_RESPONSES,
    REQUEST_MISTAKES,
    TOOLS_ONLY_IN_RESPONSES,
    UNSUPPORTED_MESSAGES,
    decode_error,
)
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes import FORMAT

EFFORT: dict[str, Any] = {"reasoning": {"effort": "medium"}}

REPORT: dict[str, Any] = {"text": FORMAT}


@pytest.mark.parametrize(("message", "feature"), UNSUPPORTED_MESSAGES)
def test_a_missing_feature_is_recognised(message: str, feature: str) -> None:
    assert [unsupported_feature(status, message) for status in (400, 422)] == [feature, feature]
    assert not requires_responses(400, message)


@pytest.mark.parametrize("message", [TOOLS_ONLY_IN_RESPONSES, OLD_API_VERSION, ONLY_RESPONSES, NO_CHAT])
def test_a_model_that_needs_responses_is_recognised(message: str) -> None:
    assert requires_responses(400, message)
    assert requires_responses(404, message)
    assert unsupported_feature(400, message) is None


@pytest.mark.parametrize("message", REQUEST_MISTAKES)
def test_a_mistake_of_the_caller_is_not_a_missing_feature(message: str) -> None:
    assert unsupported_feature(400, message) is None
    assert not requires_responses(400, message)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
@pytest.mark.parametrize("message", [ONLY_RESPONSES, NO_EFFORT])
def test_other_statuses_are_not_about_features(message: str, status: int) -> None:
    assert unsupported_feature(status, message) is None
    assert not requires_responses(status, message)


@given(st.text(min_size=1), st.sampled_from([text for text, _ in UNSUPPORTED_MESSAGES] + [ONLY_RESPONSES]))
def test_nothing_is_learned_from_a_quotation(before: str, message: str) -> None:
    quoted = f"{before} {message}"
    assert unsupported_feature(400, quoted) is None
    assert not requires_responses(400, quoted)


@pytest.mark.parametrize(("message", "feature"), UNSUPPORTED_MESSAGES)
def test_only_a_missing_effort_is_learned_at_openais_own_address(message: str, feature: str) -> None:
    own = make_adapter(OpenAI)
    assert (own.fallback_adapter(decode_error(own, message)) is not None) == (feature == "reasoning")


@pytest.mark.parametrize(("message", "feature"), UNSUPPORTED_MESSAGES)
def test_a_second_rejection_is_final(message: str, feature: str) -> None:
    there = make_adapter(OpenAI, base_url="http://x/v1")
    other = there.fallback_adapter(decode_error(there, message))
    assert isinstance(there, ChatCompletions)
    assert isinstance(other, ChatCompletions)
    assert (other.rejected_features, there.rejected_features) == (frozenset({feature}), frozenset())
    assert other.fallback_adapter(decode_error(other, message)) is None


def test_missing_features_add_up_in_any_order() -> None:
    messages = [NO_EFFORT, NO_SCHEMA, NO_TOOL_CHOICE]
    for order in (messages, messages[::-1]):
        adapter: Adapter | None = make_adapter(OpenAI, base_url="http://x/v1")
        for rejection in order:
            assert adapter
            adapter = adapter.fallback_adapter(decode_error(adapter, rejection))
        assert isinstance(adapter, OpenAI)
        assert adapter.rejected_features == {"reasoning", "json_schema", "tool_choice"}
        asking = encode_request(adapter, **EFFORT, **REPORT)
        assert asking.body.keys() == {"model", "messages", "tools"}

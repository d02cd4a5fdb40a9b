"""For any thread events, with every combination of the switches, the stream is legal and folds to its response."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bridges.threads import (
    NormalizedEvent,
    OpenResponsesConfig,
    OpenResponsesIntegration,
    ResponseBuilder,
    ThreadEvent,
)
from antiphon.protocol.events import Event, ExtensionEvent
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    content_text,
)
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.protocol.surrogates import repair_surrogates
from tests.bridges.threads.play import check_stream, grow, make_builder, messages, output_of
from tests.bridges.threads.strategies import CONFIGS, DONE, NORMALIZED, TEXTS, threads
from tests.protocol.builders import to_json
from tests.spec.schema_checks import check_event, check_response

quick = settings(deadline=None, max_examples=200)
slow = settings(deadline=None, max_examples=30)


def is_included(item: Item, config: OpenResponsesConfig) -> bool:
    match item:
        case Reasoning():
            return config.include_reasoning
        case FunctionCall() | FunctionCallOutput():
            return config.map_tool_calls
        case ExtensionItem():
            return config.include_extensions
        case _:
            return True


def play_thread(
    thread: list[ThreadEvent], config: OpenResponsesConfig, *, whole_thread: bool = False
) -> tuple[list[Event], Response]:
    builder, events = make_builder(config, whole_thread=whole_thread), list[Event]()
    for event in thread:
        builder.process_event(event, events.append)
    return events, builder.finish(events.append)


@quick
@given(threads(), CONFIGS, st.booleans())
def test_any_thread_becomes_a_legal_stream_without_what_is_left_out(
    thread: list[ThreadEvent], config: OpenResponsesConfig, whole_thread: bool
):
    events, response = play_thread(thread, config, whole_thread=whole_thread)
    check_stream(events, response)
    assert all(is_included(item, config) for item in response.output)
    assert config.include_extensions or not any(isinstance(event, ExtensionEvent) for event in events)
    for event in events:
        encode(event)


@quick
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_the_last_text_shown_is_the_last_text_of_the_message(texts: list[str]):
    [message] = output_of(*grow(*messages("1", texts[0], *texts)))
    assert isinstance(message, Message)
    last = next((text for text in reversed(texts) if text), "")
    # Half of a surrogate pair that is left alone becomes a replacement character.
    assert content_text(message.content[-1]).rstrip() == repair_surrogates(last).rstrip()


@quick
@given(threads(), CONFIGS)
def test_the_integration_gives_the_same_response_with_and_without_events(
    thread: list[ThreadEvent], config: OpenResponsesConfig
):
    integration = OpenResponsesIntegration(config)
    integration.start_response("gpt-5")
    for event in thread:
        integration.process_event(event)
    response = integration.finish_response()
    assert response is not None
    assert all(is_included(item, config) for item in response.output)
    if config.emit_events:
        check_stream(integration.take_events(), response)
    assert integration.take_events() == []


@quick
@given(NORMALIZED, DONE | st.none(), CONFIGS)
def test_any_stream_of_a_provider_becomes_a_legal_stream(
    stream: list[NormalizedEvent], done: NormalizedEvent | None, config: OpenResponsesConfig
):
    builder, events = make_builder(config), list[Event]()
    for event in [*stream, *([done] if done else [])]:
        builder.process_normalized_event(event, events.append)
    check_stream(events, builder.finish(events.append))
    assert all(is_included(item, config) for item in builder.response().output)


@slow
@given(threads())
def test_any_stream_of_a_thread_matches_the_specification(thread: list[ThreadEvent]):
    builder, events = ResponseBuilder("gpt-5"), list[Event]()
    for event in thread:
        builder.process_event(event, events.append)
    check_response(to_json(builder.finish(events.append)))
    for event in events:
        check_event(to_json(event))

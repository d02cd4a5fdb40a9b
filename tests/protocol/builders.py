"""Builders of protocol values: counted ids, a fixed clock, and the events of expected streams."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import (
    TERMINAL_EVENTS,
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseIncomplete,
    ResponseInProgress,
)
from antiphon.protocol.items import (
    Content,
    FunctionCall,
    Item,
    ItemStatus,
    LogProb,
    Message,
    OutputText,
    ReasoningText,
    RefusalContent,
    SummaryText,
    UrlCitation,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.struct import encode
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import SynthOptions

NOW = 1_700_000_000
LATER = NOW + 5
ERROR = ErrorPayload(message="It broke.", type="server_error", code="overloaded")
CITATION = UrlCitation(url="https://a.example", start_index=0, end_index=2, title="A")
LOGPROB = LogProb(token="Hi", logprob=-0.1, bytes=[72, 105], top_logprobs=[])


def counting_ids() -> Callable[[str], str]:
    """Return a source of ids that counts per prefix: msg_0, msg_1, fc_0 …"""
    taken: Counter[str] = Counter()

    def next_id(prefix: str) -> str:
        taken[prefix] += 1
        return f"{prefix}_{taken[prefix] - 1}"

    return next_id


def make_response(**changes: object) -> Response:
    """Make the response that every stream here tells of."""
    fields: dict[str, object] = {"id": "resp_0", "created_at": NOW, "model": "m", **changes}
    return Response(**fields)  # pyright: ignore[reportArgumentType]


def make_synth(response: Response | None = None, **options: object) -> Synth:
    """Make a synthesizer whose every value is known beforehand."""
    return Synth(
        response or make_response(),
        ids=counting_ids(),
        clock=lambda: float(LATER),
        options=SynthOptions(**options),  # pyright: ignore[reportArgumentType]
    )


def synthesize(*parts: Part, response: Response | None = None, **options: object) -> list[Event]:
    """Return the whole stream that some parts become."""
    return synthesize_with(parts, make_synth(response, **options))


def synthesize_with(parts: Iterable[Part], synth: Synth) -> list[Event]:
    """Return the whole stream that a synthesizer makes of some parts."""
    events = synth.start()
    for part in parts:
        if synth.ended:
            break
        events += synth.feed(part)
    return events + synth.end()


def final_response(events: list[Event]) -> Response:
    """Return the response that a whole stream ends with."""
    last = events[-1]
    assert isinstance(last, TERMINAL_EVENTS)
    return last.response


def to_json(value: object) -> object:
    """Return a value as a client reads it."""
    return msgspec.json.decode(encode(value))


def event_types(events: Iterable[Event]) -> list[str]:
    """Return only the names of some events."""
    return [event.type for event in events]


EventBuilder = Callable[..., Event]
"""An event that lacks only its number."""


def number_events(*steps: EventBuilder | list[EventBuilder]) -> list[Event]:
    """Give each step its place."""
    flat = [step for entry in steps for step in (entry if isinstance(entry, list) else [entry])]
    return [step(sequence_number=number) for number, step in enumerate(flat)]


def start_events(**changes: object) -> list[EventBuilder]:
    """Return how every response here begins."""
    response = make_response(**changes)
    return [partial(ResponseCreated, response=response), partial(ResponseInProgress, response=response)]


def make_final_response(*output: Item, status: str = "completed", **changes: object) -> Response:
    """Return the response that a stream here ends with."""
    return make_response(output=list(output), status=status, completed_at=LATER, **changes)


def completed_event(*output: Item, **changes: object) -> EventBuilder:
    """Return how a good response ends."""
    response = make_response(output=list(output), status="completed", completed_at=LATER, **changes)
    return partial(ResponseCompleted, response=response)


def incomplete_event(reason: str, *output: Item, status: str = "incomplete") -> EventBuilder:
    """Return how a response ends that was stopped."""
    details = IncompleteDetails(reason=reason)
    response = make_final_response(*output, status=status, incomplete_details=details)
    return partial(ResponseIncomplete, response=response)


def make_message(id: str, *texts: str, status: str = "completed", **changes: object) -> Message:
    """Make a message of the model's."""
    content: list[Content] = [OutputText(text=text) for text in texts]
    return Message(id=id, role="assistant", status=status, content=content, **changes)  # pyright: ignore[reportArgumentType]


def make_call(id: str, name: str, arguments: str, call_id: str, status: ItemStatus = "completed") -> FunctionCall:
    """Make a call of the model's."""
    return FunctionCall(id=id, call_id=call_id, name=name, arguments=arguments, status=status)


def item_added(index: int, item: Item) -> EventBuilder:
    """Return an item's first event."""
    return partial(OutputItemAdded, output_index=index, item=item)


def item_done(index: int, item: Item) -> EventBuilder:
    """Return an item's last event."""
    return partial(OutputItemDone, output_index=index, item=item)


def text_part_events(id: str, index: int, part: int, *deltas: str) -> list[EventBuilder]:
    """Return the events of a message's text, from part added to part done."""
    place = {"item_id": id, "output_index": index, "content_index": part}
    text = "".join(deltas)
    return [
        partial(ContentPartAdded, **place, part=OutputText(text="")),
        *(partial(OutputTextDelta, **place, delta=delta) for delta in deltas),
        partial(OutputTextDone, **place, text=text),
        partial(ContentPartDone, **place, part=OutputText(text=text)),
    ]


def refusal_part_events(id: str, index: int, part: int, *deltas: str) -> list[EventBuilder]:
    """Return the events of a refusal, from part added to part done."""
    place = {"item_id": id, "output_index": index, "content_index": part}
    text = "".join(deltas)
    return [
        partial(ContentPartAdded, **place, part=RefusalContent(refusal="")),
        *(partial(RefusalDelta, **place, delta=delta) for delta in deltas),
        partial(RefusalDone, **place, refusal=text),
        partial(ContentPartDone, **place, part=RefusalContent(refusal=text)),
    ]


def reasoning_part_events(id: str, index: int, part: int, *deltas: str) -> list[EventBuilder]:
    """Return the events of raw reasoning, from part added to part done."""
    place = {"item_id": id, "output_index": index, "content_index": part}
    text = "".join(deltas)
    return [
        partial(ContentPartAdded, **place, part=ReasoningText(text="")),
        *(partial(ReasoningDelta, **place, delta=delta) for delta in deltas),
        partial(ReasoningDone, **place, text=text),
        partial(ContentPartDone, **place, part=ReasoningText(text=text)),
    ]


def summary_part_events(id: str, index: int, part: int, *deltas: str) -> list[EventBuilder]:
    """Return the events of a summary's part, from part added to part done."""
    place = {"item_id": id, "output_index": index, "summary_index": part}
    text = "".join(deltas)
    return [
        partial(ReasoningSummaryPartAdded, **place, part=SummaryText(text="")),
        *(partial(ReasoningSummaryTextDelta, **place, delta=delta) for delta in deltas),
        partial(ReasoningSummaryTextDone, **place, text=text),
        partial(ReasoningSummaryPartDone, **place, part=SummaryText(text=text)),
    ]


def message_events(id: str, index: int, *deltas: str, status: str = "completed") -> list[EventBuilder]:
    """Return the whole life of a message with one text."""
    return [
        item_added(index, make_message(id, status="in_progress")),
        *text_part_events(id, index, 0, *deltas),
        item_done(index, make_message(id, "".join(deltas), status=status)),
    ]


def arguments_delta(id: str, index: int, delta: str) -> EventBuilder:
    """Return one delta of a call's arguments."""
    return partial(FunctionCallArgumentsDelta, item_id=id, output_index=index, delta=delta)


def call_end_events(index: int, item: FunctionCall) -> list[EventBuilder]:
    """Return the end of a call."""
    place = {"item_id": str(item.id), "output_index": index}
    return [partial(FunctionCallArgumentsDone, **place, arguments=item.arguments), item_done(index, item)]

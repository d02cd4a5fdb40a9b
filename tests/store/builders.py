"""Builders of responses, items and events for the store tests."""

from collections.abc import Awaitable, Callable
from typing import cast

from msgspec.structs import replace

from antiphon.protocol.items import (
    Compaction,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    ItemReference,
    LogProb,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalContent,
    SummaryText,
    TopLogProb,
    UrlCitation,
    content_text,
)
from antiphon.protocol.request import JsonSchemaFormat, ReasoningConfig, TextConfig
from antiphon.protocol.response import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseStatus,
    ResponseUsage,
    ResponseWarning,
)
from antiphon.protocol.struct import decode_as
from antiphon.protocol.tools import Tool
from antiphon.store.pagination import ItemPage, Order, PageCursor

NOW = 1_700_000_000
LATER = NOW + 5
NASTY = 'it\'s "quoted" \0 \\ 🎵 \u2028; DROP TABLE responses; --'


def new_response(id: str, previous: str | None = None, **changes: object) -> Response:
    """Return a response in progress."""
    fields: dict[str, object] = {"id": id, "created_at": NOW, "model": "m", **changes}
    return Response(previous_response_id=previous, **fields)  # pyright: ignore[reportArgumentType]


def ended_response(
    response: Response, *output: Item, status: ResponseStatus = "completed", at: int | None = LATER
) -> Response:
    """Return a response with a terminal status."""
    return replace(response, status=status, output=list(output), completed_at=at)


def user_message(id: str, text: str = "hello") -> Message:
    """Return a user message."""
    return Message(id=id, role="user", content=[InputText(text=text)])


def assistant_message(id: str, text: str = "hi") -> Message:
    """Return an assistant message."""
    return Message(id=id, role="assistant", status="completed", content=[OutputText(text=text)])


def make_events(first: int, count: int) -> list[bytes]:
    """Return events with the sequence numbers from `first` on."""
    return [b'{"type":"t","sequence_number":%d}' % number for number in range(first, first + count)]


ITEMS: list[Item] = [
    Message(id="in_user", role="user", content=[InputText(text=NASTY)], extra={"acme": [1, None]}),
    Message(
        id="in_parts",
        role="user",
        content=[
            InputImage(image_url="data:image/png;base64,AA==", detail="high"),
            InputImage(extra={"file_id": "file_1"}),
            InputFile(filename="a.pdf", file_data="AA=="),
            InputFile(file_url="https://a.example/a.pdf"),
            InputVideo(video_url="https://a.example/a.mp4"),
        ],
    ),
    Message(id="in_system", role="system", content=[]),
    Message(
        id="in_assistant",
        role="assistant",
        status="incomplete",
        phase="commentary",
        content=[
            OutputText(
                text="x",
                annotations=[UrlCitation(url="u", start_index=0, end_index=1, title="t")],
                logprobs=[
                    LogProb(
                        token="x",
                        logprob=-0.1,
                        bytes=[120],
                        top_logprobs=[TopLogProb(token="y", logprob=-1e-9, bytes=[])],
                    )
                ],
            ),
            RefusalContent(refusal="no"),
        ],
    ),
    FunctionCall(id="in_call", call_id="call_1", name="f", arguments='{"a": 1}', status="completed"),
    FunctionCallOutput(id="in_text_output", call_id="call_1", output="42", status="completed"),
    FunctionCallOutput(id="in_output", call_id="call_1", output=[InputText(text="42")]),
    Reasoning(
        id="in_reasoning",
        summary=[SummaryText(text="s")],
        content=[ReasoningText(text="r")],
        encrypted_content="sealed",
        status="completed",
    ),
    Reasoning(id="in_bare_reasoning"),
    Compaction(id="in_compaction", encrypted_content="sealed", created_by="us"),
    ItemReference(id="in_reference"),
    ExtensionItem(type="acme:search", id="in_extension", status="searching", extra={"query": "q"}),
    ExtensionItem(
        type="acme:odd", id="in_odd", extra={"role": {"not": "a string"}, "content": None, "rest": 1, "position": "x"}
    ),
]
"""Every type of item, with every field and some unknown ones."""

TOOLS = cast(
    "list[Tool]",
    decode_as(
        list[Tool],
        [
            {
                "type": "function",
                "name": "f",
                "description": NASTY,
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "strict": True,
            }
        ],
    ),
)

FULL = Response(
    id="resp_full",
    created_at=NOW,
    completed_at=LATER,
    status="failed",
    incomplete_details=IncompleteDetails(reason="max_output_tokens", extra={"why": "so"}),
    model=NASTY,
    previous_response_id="resp_elsewhere",
    instructions=NASTY,
    output=ITEMS,
    error=ResponseError(code="server_error", message="broke", type="server_error"),
    tools=TOOLS,
    tool_choice="required",
    truncation="auto",
    parallel_tool_calls=False,
    text=TextConfig(format=JsonSchemaFormat(name="n", schema={"type": "object"}, strict=True), verbosity="low"),
    top_p=0.1,
    presence_penalty=0.25,
    frequency_penalty=-0.5,
    top_logprobs=3,
    temperature=0.30000000000000004,
    reasoning=ReasoningConfig(effort="high", summary="auto"),
    usage=ResponseUsage.of(1000, 200, cached=500, reasoning=10),
    max_output_tokens=2**53,
    max_tool_calls=7,
    store=True,
    background=True,
    service_tier="flex",
    metadata={"a": "b", NASTY: NASTY},
    safety_identifier="safe",
    prompt_cache_key="cache",
    user=NASTY,
    warnings=[ResponseWarning(code="c", message="m", param="p")],
    extra={"user_id": "not ours", "tenant": 3, "rest": {"deep": [1.5, None, "x"]}},
)
"""A response with a value in every field, and extra fields named like our columns."""


def content_text_of(item: Item) -> str:
    """Return the text of a message."""
    assert isinstance(item, Message)
    return "".join(map(content_text, item.content))


async def list_all(
    list_page: Callable[[PageCursor], Awaitable[ItemPage | None]], limit: int, order: Order
) -> list[Item]:
    """Return the items of all pages, each after the last item of the one before."""
    items: list[Item] = []
    page, after = None, None
    while page is None or page.has_more:
        assert len(items) < 100, "the pages never end"
        page = await list_page(PageCursor(limit, order, after=after))
        assert page is not None
        items += page.items
        after = str(page.items[-1].id)
    return items

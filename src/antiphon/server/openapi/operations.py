"""All operations of the server: their parameters, bodies and answers.

A test compares them with the routes of the application.
"""

from typing import Literal, get_args

from msgspec import UNSET, Struct, UnsetType, field

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.request import CompactRequest, Metadata, Request
from antiphon.protocol.response import CompactResource, InputTokens, Response, ResponseStatus
from antiphon.protocol.struct import JsonObject, ProtocolStruct
from antiphon.server.endpoints.base import MAX_INT64, MAX_SEARCH_LENGTH
from antiphon.server.endpoints.conversations import AddItemsBody, CreateConversationBody, UpdateConversationBody
from antiphon.server.endpoints.hashbrown import TitleBody
from antiphon.store.lists import ConversationSummary, ResponseSummary
from antiphon.store.pagination import Order
from antiphon.wire.chat.wire_types import Body as ChatBody
from antiphon.wire.hashbrown.request import HashbrownBody
from antiphon.wire.openresponses import KNOWN_INCLUDES


class ErrorBody(ProtocolStruct):
    """The body of every answer with a status of 400 or more; `detail` is at the OpenAI doors."""

    error: ErrorPayload
    detail: str | UnsetType = UNSET


class DeletedObject(ProtocolStruct):
    """What was deleted."""

    id: str
    object: str
    deleted: bool


class Conversation(ProtocolStruct):
    """A conversation without its items."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: Metadata


class Model(ProtocolStruct):
    """A model; `antiphon:agent` describes an agent that is served as one."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    agent: JsonObject | UnsetType = field(default=UNSET, name="antiphon:agent")


class ThreadRow(ProtocolStruct):
    """A Hashbrown thread in a list."""

    id: str
    title: str
    updated_at: int


class ThreadTitle(ProtocolStruct):
    """The title of a Hashbrown thread."""

    id: str
    title: str | None


class Health(ProtocolStruct):
    """The state of the server."""

    status: Literal["ok", "ready"]


class ChatCompletion(ProtocolStruct):
    """A chat completion, as OpenAI documents it."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[JsonObject]


class ListOf(Struct, frozen=True):
    """A page of a list, whose rows have a type."""

    row: object
    has_cursors: bool = True


class Parameter(Struct, frozen=True):
    """A parameter of the query."""

    name: str
    schema: JsonObject
    description: str
    style: str = "form"


class Operation(Struct, frozen=True):
    """One method of one path; `body` and `answer` are types, `stream` the type of the events of a stream."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    answer: object
    body: object = None
    body_is_optional: bool = False
    parameters: tuple[Parameter, ...] = ()
    stream: object = None
    stream_type: str = "text/event-stream"
    is_extension: bool = False


TIME: JsonObject = {"type": "integer", "minimum": 0, "maximum": MAX_INT64}
TEXT: JsonObject = {"type": "string"}
FLAG: JsonObject = {"type": "boolean"}

PAGE = (
    Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "The most rows of the page."),
    Parameter("order", {"type": "string", "enum": [*get_args(Order)], "default": "desc"}, "desc: the newest first."),
    Parameter("after", TEXT, "The id after which the page starts."),
    Parameter("before", TEXT, "The id before which the page ends."),
)
CONDITIONS = (
    Parameter("created_after", TIME, "Only rows created after this Unix time."),
    Parameter("created_before", TIME, "Only rows created before this Unix time."),
    Parameter(
        "metadata",
        {"type": "object", "additionalProperties": TEXT},
        "Only rows with these entries: metadata[key]=value.",
        "deepObject",
    ),
    Parameter("search", TEXT | {"maxLength": MAX_SEARCH_LENGTH}, "Only rows with this text in their items."),
)
RESPONSE_CONDITIONS = (
    Parameter("model", TEXT, "Only responses of this model."),
    Parameter("status", {"type": "string", "enum": [*get_args(ResponseStatus)]}, "Only responses with this status."),
    Parameter("background", FLAG, "Only responses made in the background, or only others."),
    Parameter("previous_response_id", TEXT, "Only responses that continue this one."),
    Parameter("conversation", TEXT, "Only responses of this conversation."),
)
INCLUDE = Parameter(
    "include",
    {"type": "array", "items": {"type": "string", "examples": sorted(KNOWN_INCLUDES)}},
    "What to include beside the defaults, such as reasoning.encrypted_content.",
)
REPLAY = (
    Parameter("stream", FLAG, "Stream the events of the response."),
    Parameter("starting_after", TIME, "Resume the stream of a background response after this sequence number."),
)

DOOR_OPERATIONS = (
    Operation(
        "POST", "/responses", "createResponse", "Responses", "Create a response", Response, Request, stream=Event
    ),
    Operation(
        "GET",
        "/responses",
        "listResponses",
        "Responses",
        "List stored responses",
        ListOf(ResponseSummary),
        parameters=PAGE + CONDITIONS + RESPONSE_CONDITIONS,
        is_extension=True,
    ),
    Operation(
        "GET",
        "/responses/{id}",
        "getResponse",
        "Responses",
        "Get a stored response, or stream it again",
        Response,
        parameters=(*REPLAY, INCLUDE),
        stream=Event,
    ),
    Operation("DELETE", "/responses/{id}", "deleteResponse", "Responses", "Delete a response", DeletedObject),
    Operation(
        "POST", "/responses/{id}/cancel", "cancelResponse", "Responses", "Cancel a background response", Response
    ),
    Operation(
        "GET",
        "/responses/{id}/input_items",
        "listInputItems",
        "Responses",
        "List the input items of a response",
        ListOf(Item),
        parameters=(*PAGE, INCLUDE),
    ),
    Operation(
        "POST",
        "/responses/compact",
        "compactResponse",
        "Responses",
        "Compact a conversation",
        CompactResource,
        CompactRequest,
    ),
    Operation(
        "POST",
        "/responses/input_tokens",
        "countInputTokens",
        "Responses",
        "Count the input tokens of a request",
        InputTokens,
        Request,
    ),
    Operation(
        "POST",
        "/chat/completions",
        "createChatCompletion",
        "Chat",
        "Create a chat completion",
        ChatCompletion,
        ChatBody,
        stream=dict[str, object],
    ),
    Operation(
        "POST",
        "/conversations",
        "createConversation",
        "Conversations",
        "Create a conversation",
        Conversation,
        CreateConversationBody,
        body_is_optional=True,
    ),
    Operation(
        "GET",
        "/conversations",
        "listConversations",
        "Conversations",
        "List conversations",
        ListOf(ConversationSummary),
        parameters=PAGE + CONDITIONS,
        is_extension=True,
    ),
    Operation("GET", "/conversations/{id}", "getConversation", "Conversations", "Get a conversation", Conversation),
    Operation(
        "POST",
        "/conversations/{id}",
        "updateConversation",
        "Conversations",
        "Change the metadata of a conversation",
        Conversation,
        UpdateConversationBody,
    ),
    Operation(
        "DELETE",
        "/conversations/{id}",
        "deleteConversation",
        "Conversations",
        "Delete a conversation and its items",
        DeletedObject,
    ),
    Operation(
        "GET",
        "/conversations/{id}/items",
        "listItems",
        "Conversations",
        "List the items of a conversation",
        ListOf(Item),
        parameters=(*PAGE, INCLUDE),
    ),
    Operation(
        "POST",
        "/conversations/{id}/items",
        "addItems",
        "Conversations",
        "Add items to a conversation",
        ListOf(Item),
        AddItemsBody,
    ),
    Operation(
        "GET", "/conversations/{id}/items/{item_id}", "getItem", "Conversations", "Get an item of a conversation", Item
    ),
    Operation(
        "DELETE",
        "/conversations/{id}/items/{item_id}",
        "deleteItem",
        "Conversations",
        "Delete an item of a conversation",
        Conversation,
    ),
    Operation("GET", "/models", "listModels", "Models", "List the models", ListOf(Model, has_cursors=False)),
    Operation("GET", "/models/{id}", "getModel", "Models", "Get a model; its id may contain slashes", Model),
)
"""The operations of every door."""

ROOT_OPERATIONS = (
    Operation(
        "POST",
        "/hashbrown/chat",
        "hashbrownChat",
        "Hashbrown",
        "Answer a Hashbrown client with length-prefixed frames",
        None,
        HashbrownBody,
        stream=bytes,
        stream_type="application/octet-stream",
        is_extension=True,
    ),
    Operation(
        "GET",
        "/hashbrown/threads",
        "listThreads",
        "Hashbrown",
        "List the threads of Hashbrown clients",
        ListOf(ThreadRow),
        parameters=(PAGE[0], PAGE[2]),
        is_extension=True,
    ),
    Operation(
        "POST",
        "/hashbrown/threads/{id}",
        "renameThread",
        "Hashbrown",
        "Set the title of a thread",
        ThreadTitle,
        TitleBody,
        is_extension=True,
    ),
    Operation(
        "DELETE",
        "/hashbrown/threads/{id}",
        "deleteThread",
        "Hashbrown",
        "Delete a thread",
        DeletedObject,
        is_extension=True,
    ),
    Operation("GET", "/healthz", "healthz", "Health", "Whether the process is alive", Health, is_extension=True),
    Operation("GET", "/readyz", "readyz", "Health", "Whether requests are accepted", Health, is_extension=True),
)
"""The operations that exist once."""

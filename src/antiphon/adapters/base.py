"""What an adapter is: one provider's dialect, both ways.

`encode` writes a prompt as the provider's request, a `Decoder` hears its answer as parts.
What is the same for every provider stands here: how bytes that cannot be read, streams that are cut
short and errors in bodies are told.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from antiphon.adapters.errors import (
    MAX_NAME_LENGTH,
    TRUNCATED,
    ErrorInfo,
    client_status,
    error_type,
    infer_code,
    infer_status,
    is_retryable,
    parse_error,
    plain_text_body,
    redact,
    retry_headers,
    unreadable_error,
)
from antiphon.adapters.json_access import as_array, as_object
from antiphon.adapters.provider_config import ConfigurableProvider
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.transport.request import Credential, Key, Upstream
from antiphon.wire import json

T = TypeVar("T")

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""How large one event of a provider may be; images and sealed thinking are long."""

Transform = Callable[[dict[str, object]], object | Awaitable[object]]
"""Changes a request's body before it is sent: returns the new body, or None for the same one."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What is known of one model: its window, its room to answer, and which features it lacks."""

    window: int | None = None
    max_output_tokens: int | None = None
    lacks: frozenset[str] = frozenset()


class Provider(Struct, frozen=True, kw_only=True):
    """An upstream as it is configured; keys are named here, never held."""

    name: str
    adapter: str
    base_url: str | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    endpoint: str | None = None
    api_version: str | None = None
    region: str | None = None
    profile: str | None = None
    project: str | None = None
    location: str | None = None
    strict: bool = False
    timeouts: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """How many seconds it may take, by the names of `transport.connection.Timeouts`, where that is
    not as the server has it for all."""
    transform_request: Transform | None = None
    models: Mapping[str, Capabilities] = msgspec.field(default_factory=dict[str, Capabilities])


class Prompt(Struct, frozen=True):
    """What a model is to read and obey; `model` is the name its provider knows.

    `warnings` gathers what could not be carried and does not change the meaning.
    """

    model: str
    request: Request
    items: Sequence[Item]
    stream: bool = False
    capabilities: Capabilities = msgspec.field(default_factory=Capabilities)
    warnings: list[parts.Warn] = msgspec.field(default_factory=list[parts.Warn])

    def warn(self, code: str, message: str, param: str | None = None) -> None:
        """Note something that the client should know."""
        self.warnings.append(parts.Warn(code, message, param))

    def item_path(self, item: Item) -> str:
        """Name an item as the client knows it: by its index in `input`, if it is there."""
        for index, other in enumerate(self.request.input):
            if other is item or (item.id and other.id == item.id):
                return f"input[{index}]"
        return "input"

    def unsupported_error(
        self, message: str, param: str, code: str = "unsupported_value"
    ) -> RequestError:
        """Make the error for what cannot be carried and would change the meaning."""
        return RequestError(message, param=param, code=code)


TokenCountRequest = tuple[Upstream, Callable[[object], int]]
"""A request for a count, and what reads it out of the answer; that raises ValueError."""


class Adapter(ConfigurableProvider, ABC):
    """One provider's dialect, at one address."""

    features: frozenset[str] = frozenset()
    """The features that this dialect has; see `carry.py`."""

    hosted_tools: frozenset[str] = frozenset()
    """The tools beside functions that this dialect has, as `slug:name`."""

    raw_tool_slug: ClassVar[str] = ""
    """The slug of tools that are passed on as the client wrote them, if there are such."""

    passes_unknown_fields: ClassVar[bool] = False
    """Whether fields of a request that nobody here knows are passed on."""

    extension_items: ClassVar[frozenset[str]] = frozenset()
    """The items beside the specification's that this dialect can read, as `slug:name`."""

    rejected_features: frozenset[str] = frozenset()
    """What it was found to lack, by the server's refusing it."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.base_url = (provider.base_url or self.default_url or "").rstrip("/")

    def missing_features(self, model: str) -> frozenset[str]:
        """Return the features of the dialect that one model is known not to have."""
        del model
        return frozenset()

    def vendor(self, model: str) -> str:
        """Return which models share their sealed thinking: those of one maker."""
        maker, slash, _ = model.partition("/")
        return maker if slash else ""

    def supports_tool(self, type: str) -> bool:
        """Tell whether a tool beside functions is one that this dialect has."""
        return type in self.hosted_tools or bool(
            self.raw_tool_slug and type.startswith(self.raw_tool_slug)
        )

    def supports_item(self, type: str) -> bool:
        """Tell whether this dialect can read a type beside the specification's."""
        return type in self.extension_items

    def available_features(self, prompt: Prompt) -> frozenset[str]:
        """Return the features that a prompt may use."""
        return (
            self.features
            - prompt.capabilities.lacks
            - self.missing_features(prompt.model)
            - self.rejected_features
        )

    @abstractmethod
    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as the provider's request; raises RequestError.

        What the dialect does not carry has been taken out of the prompt before.
        """

    @abstractmethod
    def decoder(self, prompt: Prompt) -> "Decoder":
        """Return what hears the answer to a prompt."""

    def credential(self) -> Credential | None:
        """Say how the provider wants to be shown who asks."""
        return Key()

    def models_request(self) -> Upstream | None:
        """Describe the request that lists the provider's models, if there is one."""
        return Upstream(method="GET", url=f"{self.base_url}/models")

    def decode_models(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return collect_names(body, "data", "id")

    def count_tokens_request(self, prompt: Prompt) -> TokenCountRequest | None:
        """Describe how the tokens of a prompt are counted, if the provider does."""
        del prompt
        return None

    def fallback_adapter(self, error: UpstreamError) -> "Adapter | None":
        """Return the adapter that may succeed where this one has failed for good, if any."""
        del error
        return None

    # --- errors ---

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
        """Read the answer of a provider that refuses."""
        try:
            value = json.decode_lenient(body)
        except json.JSONError:
            value = plain_text_body(headers, body)
        fault = infer_code(self.parse_error(status, headers, value))
        told = self._error_payload(fault, status, f"answered {status} and did not say why.")
        return UpstreamError(
            told.message,
            status=client_status(status),
            type=told.type,
            code=told.code,
            param=told.param,
            retryable=is_retryable(status, headers, fault),
            headers=retry_headers(headers),
        )

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body; dialects with another shape say so themselves."""
        del status, headers
        return parse_error(body)

    def failure_part(self, error: ErrorInfo, status: int | None = None) -> parts.Failure:
        """Tell an error that came inside an answer; `status` is what it would have been before."""
        error = infer_code(error)
        status = status or infer_status(error)
        told = self._error_payload(error, status, "broke off and did not say why.")
        return parts.Failure(told, status=client_status(status))

    def _error_payload(self, error: ErrorInfo, status: int, default: str) -> ErrorPayload:
        """Write an error as the client may see it."""
        return ErrorPayload(
            message=f"{self.provider.name}: {redact(error.message or default)}",
            type=redact(error.type or error_type(status), MAX_NAME_LENGTH),
            code=error.code and redact(error.code, MAX_NAME_LENGTH),
            param=error.param and redact(error.param, MAX_NAME_LENGTH),
        )


TERMINAL_PARTS = frozenset({parts.Finish, parts.Failure})


class Framing(Protocol):
    """How the bytes of a stream are cut into chunks: `wire` has several."""

    def feed(self, data: bytes, /) -> Iterable[object]:
        """Return the chunks that some bytes complete; may raise ValueError."""
        ...

    def close(self) -> Iterable[object]:
        """Return the chunks that the stream's end completes."""
        ...


class Decoder(ABC):
    """Hears one answer: bytes in, parts out."""

    def __init__(self, adapter: Adapter, framing: Framing) -> None:
        self.adapter = adapter
        self.framing = framing
        self.finished = False
        """Whether the model has said why it stopped."""
        self.done = False
        """Whether nothing more is to be heard, whatever else is sent."""
        self.failed = False
        """Whether it has told that the answer broke."""
        self.text_fast_path: Callable[[bytes], list[str] | None] | None = None
        """Finds the words in bytes that hold nothing but plain words, if that can be told now."""
        self._warned_of_output = False
        self.ended_calls: list[parts.Key] = []
        """The calls that have ended, complete or cut: what follows tells."""

    def is_stream(self, content_type: str) -> bool:
        """Tell whether a body of this type is a stream, and not one whole answer."""
        return "json" not in content_type or "ndjson" in content_type

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that some bytes of a stream complete, or, without any, its end."""
        told: list[Part] = []
        try:
            framing = self.framing
            for chunk in framing.close() if data is None else framing.feed(data):
                if self.done:
                    break
                for part in self.decode_chunk(chunk):
                    told.append(part)
                    if type(part) in TERMINAL_PARTS:
                        self._note_end(part)
        except DECODE_ERRORS as error:
            if data is not None or not self.finished:  # or else only its last words were cut
                self._add_unreadable_failure(error, told)
        return move_failure_last(told) if self.failed else told

    def close(self) -> list[Part]:
        """Return what is left when the stream has ended, or that it ended too early."""
        return self._add_missing_end(self.feed(None))

    def feed_whole(self, body: bytes) -> list[Part]:
        """Return the parts of an answer that came in one piece."""
        told: list[Part] = []
        try:
            for part in self.decode_body(body):
                told.append(part)
                if type(part) in TERMINAL_PARTS:
                    self._note_end(part)
        except DECODE_ERRORS as error:
            self._add_unreadable_failure(error, told)
        return self._add_missing_end(move_failure_last(told) if self.failed else told)

    # --- what a dialect says ---

    @abstractmethod
    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Return the parts that a chunk means."""

    @abstractmethod
    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Return the parts that a whole answer means."""

    def truncation_parts(self) -> Iterable[Part]:
        """Tell that the answer ended before it was whole."""
        return (self.adapter.failure_part(TRUNCATED),)

    # --- what is the same for all ---

    def unsupported_output_parts(self) -> list[Part]:
        """Warn of an answer that is neither text nor a call, such as an image; once is enough."""
        if self._warned_of_output:
            return []
        self._warned_of_output = True
        message = f"{self.adapter.provider.name} said what is neither text nor a call."
        return [parts.Warn("unsupported_output", f"{message} It was left out.")]

    def complete_calls(self) -> list[Part]:
        """Tell that the calls that have ended are complete, since something else begins."""
        ended, self.ended_calls = self.ended_calls, []
        return [parts.Call(key, complete=True) for key in ended]

    def finish_parts(self, finish: parts.Finish) -> list[Part]:
        """Tell why a model stopped; unless it was cut, the calls that have ended are complete."""
        return [finish] if finish.reason in TRUNCATION_REASONS else [*self.complete_calls(), finish]

    def _note_end(self, part: Part) -> None:
        if isinstance(part, parts.Finish):
            self.finished = True
        else:
            self.done = self.failed = True

    def _add_unreadable_failure(self, error: Exception, decoded: list[Part]) -> None:
        decoded.append(self.adapter.failure_part(unreadable_error(error)))
        self.done = True

    def _add_missing_end(self, decoded: list[Part]) -> list[Part]:
        if not (self.finished or self.done):
            decoded.extend(self.truncation_parts())
            self.done = True
        return decoded


def move_failure_last(decoded: list[Part]) -> list[Part]:
    """Put a failure last: what was counted beside it is counted, and nothing is said after it."""
    for place, part in enumerate(decoded):
        if isinstance(part, parts.Failure):
            counted = [other for other in decoded[place:] if isinstance(other, parts.Usage)]
            return [*decoded[:place], *counted, part]
    return decoded


class JsonReader(Generic[T]):
    """Reads JSON of one shape, fast. Unknown fields are ignored; half an emoji is kept.

    What has another shape is read once more after it was tidied, if the dialect knows how.
    """

    def __init__(self, kind: type[T], normalize: Callable[[object], object] | None = None) -> None:
        self._kind = kind
        self._normalize = normalize
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> T:
        """Read one text; raises ValueError."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._convert(json.decode_lenient(data))

    def _convert(self, raw: object) -> T:
        try:
            return msgspec.convert(raw, self._kind)
        except msgspec.ValidationError:
            if self._normalize is None:
                raise
            return msgspec.convert(self._normalize(raw), self._kind, strict=False)


DECODE_ERRORS = (ValueError, RecursionError)
"""What bytes that nobody can read raise; msgspec's errors and our wire's are ValueErrors."""


TRUNCATION_REASONS: frozenset[parts.Reason] = frozenset({"length", "content_filter"})
"""The reasons after which what was said last is not whole, even if it has ended."""


def finish_part(
    raw: str | None, reasons: Mapping[str, parts.Reason], *, has_calls: bool
) -> parts.Finish:
    """Say why a model stopped; of one that calls, many providers say just that it did."""
    reason = reasons.get(raw or "", "stop")
    return parts.Finish("tool_calls" if has_calls and reason == "stop" else reason, raw)


def collect_names(body: object, group: str, field: str) -> list[str]:
    """Return one field of every object in a list, wherever it is a string."""
    names = (as_object(entry).get(field) for entry in as_array(as_object(body).get(group)))
    return [name for name in names if isinstance(name, str)]

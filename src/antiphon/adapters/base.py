"""The base classes of adapters: `Adapter` encodes prompts, `Decoder` decodes answers into parts.

Both hold what is the same for all providers: errors in bodies and in streams, bytes that cannot be
decoded, and streams that end too early. `ConfigurableProvider` holds what the configuration needs to know
of a provider: environment variables, keys, default addresses.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from antiphon.adapters import errors
from antiphon.adapters.errors import ErrorInfo
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.struct import as_array, as_object
from antiphon.transport.request import Credential, Key, Upstream
from antiphon.wire import json

Environ = Mapping[str, str]

CREDENTIAL_KEYS = frozenset({"api_key_env", "base_url", "profile", "project"})
"""Keys of a table that decide which credential is used. If a table has one of them, the adapter's
own variable is not looked up: a key must never be sent to an address it was not meant for."""


class ConfigSource(Struct, frozen=True, kw_only=True):
    """Everything that is configured for one provider: its table and the environment."""

    name: str
    """The provider's name. If it is the adapter's name, the environment describes this provider."""
    table: Mapping[str, object]
    """The checked `[providers.NAME]` table. It holds at least `adapter`."""
    environ: Environ
    in_file: bool
    """Whether the file has a table for this provider, or only the environment may describe it."""
    profile_region: Callable[[str | None, Environ], str | None] = lambda profile, environ: None
    """Reads the region of a named profile from this machine's cloud configuration. It is passed in
    because adapters do no I/O."""

    @property
    def has_adapter_name(self) -> bool:
        return self.name == self.table["adapter"]

    def variable(self, name: str) -> str:
        """Return the value of an environment variable, without spaces around it."""
        return self.environ.get(name, "").strip()


class ConfigurableProvider:
    """An adapter class, as the configuration sees it."""

    name: ClassVar[str]
    default_url: ClassVar[str | None] = None
    key_env: ClassVar[tuple[str, ...]] = ()
    """The environment variables that may hold the API key, in order of preference."""

    field_variables: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For each field of `Provider`, the environment variables that set it, in order of preference.
    These are the variables that the provider's own SDK reads."""

    machine_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields whose variables describe this machine, and so apply to every provider of the
    adapter, whatever its name."""

    table_keys: ClassVar[Mapping[str, str]] = {}
    """The keys of the table that this adapter reads and others do not, each with an example value
    in TOML. Adapters of other packages may read any key of `Provider` without listing it."""

    required_field: ClassVar[str | None] = None
    """The field that says where the provider is, if there is no `base_url` and no default."""

    @classmethod
    def is_local(cls) -> bool:
        """Return whether the default address is a server on this machine, which may not run."""
        return (cls.default_url or "").startswith("http:")

    @classmethod
    def check_table(cls, table: Mapping[str, object]) -> None:
        """Raise InvalidValueError, with the key as its path, for keys that contradict."""

    @classmethod
    def environment_fields(cls, source: ConfigSource) -> dict[str, str]:
        """Return the fields that the environment adds to the table."""
        # The variables describe one provider, at its own address. Another name or another address
        # in the file means another server.
        is_described = source.has_adapter_name and "base_url" not in source.table
        found: dict[str, str] = {}
        for field, variables in cls.field_variables.items():
            value = next(filter(None, [source.variable(name) for name in variables]), "")
            if value and (is_described or field in cls.machine_fields):
                found[field] = cls.parse_variable(field, value)
        return found

    @classmethod
    def parse_variable(cls, field: str, value: str) -> str:
        """Return a variable's value as the field is written in the file."""
        return value

    @classmethod
    def api_key_variable(cls, fields: Mapping[str, object], source: ConfigSource) -> str | None:
        """Return the variable that holds the API key or should hold it; None if no key is needed.

        `fields` are those of the table and of the environment together.
        """
        if found := cls.find_api_key(source):
            return found
        if "base_url" in fields or cls.is_local() or not cls.key_env:
            return None
        return cls.key_env[0]

    @classmethod
    def find_api_key(cls, source: ConfigSource) -> str | None:
        """Return the first variable of `key_env` that is set."""
        return next(filter(source.variable, cls.key_env), None)

    @classmethod
    def missing_field(cls, fields: Mapping[str, object], source: ConfigSource) -> tuple[str, str] | None:
        """Return a required field that nothing sets, and the variable that could set it.

        Raise InvalidValueError, with the key as its path, if the table's keys make no sense without each other.
        """
        field = cls.required_field
        if field is None or field in fields or "base_url" in fields:
            return None
        return field, cls.field_variables[field][0]


T = TypeVar("T")

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The largest event of a provider that is accepted. Images and encrypted reasoning are large."""

Transform = Callable[[dict[str, object]], object | Awaitable[object]]
"""A user's hook that changes a request body. It returns the new body, or None to keep it."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What is known of one model: its context window, output limit and missing features."""

    window: int | None = None
    max_output_tokens: int | None = None
    lacks: frozenset[str] = frozenset()


class Provider(Struct, frozen=True, kw_only=True):
    """The configuration of one upstream. It names the variable of the API key, never the key."""

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
    """Timeouts in seconds that differ from the server's, by the field names of `transport.connection.Timeouts`."""
    transform_request: Transform | None = None
    models: Mapping[str, Capabilities] = msgspec.field(default_factory=dict[str, Capabilities])


class Prompt(Struct, frozen=True):
    """The input of one model call. `model` is the name that the provider knows.

    `warnings` collects what was dropped or approximated without changing the meaning.
    """

    model: str
    request: Request
    items: Sequence[Item]
    stream: bool = False
    capabilities: Capabilities = msgspec.field(default_factory=Capabilities)
    warnings: list[parts.Warn] = msgspec.field(default_factory=list[parts.Warn])

    def warn(self, code: str, message: str, param: str | None = None) -> None:
        self.warnings.append(parts.Warn(code, message, param))

    def item_path(self, item: Item) -> str:
        """Return an item's path in the request: `input[N]`, or `input` for one from the history."""
        # Items of the history were loaded from the store; the client cannot count them.
        for index, other in enumerate(self.request.input):
            if other is item or (item.id and other.id == item.id):
                return f"input[{index}]"
        return "input"

    def unsupported_error(self, message: str, param: str, code: str = "unsupported_value") -> RequestError:
        """Build the error for something the provider lacks and the request cannot do without."""
        return RequestError(message, param=param, code=code)


TokenCountRequest = tuple[Upstream, Callable[[object], int]]
"""A request that counts tokens, and a function that returns the count from its body or raises ValueError."""


class Adapter(ConfigurableProvider, ABC):
    """One provider's dialect at one address. It does no I/O and keeps no state between requests."""

    features: frozenset[str] = frozenset()
    """The features that the dialect supports, by the names in `features.py`. This is an allow-list:
    what is not listed is dropped with a warning, or rejected."""

    hosted_tools: frozenset[str] = frozenset()
    """The tools other than functions that the dialect supports, as `slug:name`."""

    raw_tool_slug: ClassVar[str] = ""
    """The slug of tools that are sent as the client wrote them, with its colon; empty if none."""

    passes_unknown_fields: ClassVar[bool] = False
    """Whether unknown fields of a request are sent on."""

    extension_items: ClassVar[frozenset[str]] = frozenset()
    """The items beyond the specification that the dialect can encode, as `slug:name`."""

    models_list: ClassVar[tuple[str, str]] = ("data", "id")
    """Where the list of models is in its body, and which field of an entry is the model's name."""

    has_threads: ClassVar[bool] = True
    """Whether Hashbrown's threads are stored for its models; in front of an Open Responses server the
    application keeps them."""

    rejected_features: frozenset[str] = frozenset()
    """The features that the server has rejected, learned from its errors."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.base_url = (provider.base_url or self.default_url or "").rstrip("/")

    def missing_features(self, model: str) -> frozenset[str]:
        """Return the features of the dialect that a model is known to lack."""
        return frozenset()

    def vendor(self, model: str) -> str:
        """Return the vendor of a model. Models of one vendor can read each other's reasoning."""
        return model.partition("/")[0] if "/" in model else ""

    def supports_tool(self, type: str) -> bool:
        """Return whether the dialect supports a tool that is not a function."""
        slug = self.raw_tool_slug
        return type in self.hosted_tools or bool(slug and type.startswith(slug))

    def supports_item(self, type: str) -> bool:
        """Return whether the dialect can encode an item or content beyond the specification."""
        return type in self.extension_items

    def available_features(self, prompt: Prompt) -> frozenset[str]:
        """Return the features that a prompt may use, given its model and what was learned."""
        return self.features - prompt.capabilities.lacks - self.missing_features(prompt.model) - self.rejected_features

    @abstractmethod
    def encode(self, prompt: Prompt) -> Upstream:
        """Encode a prompt as the provider's request; raises RequestError.

        Unsupported features have been removed from the prompt before (`features.py`).
        """

    @abstractmethod
    def decoder(self, prompt: Prompt) -> "Decoder":
        """Return a new decoder for the answer to a prompt."""

    def credential(self) -> Credential | None:
        """Return the kind of credential that the provider wants."""
        return Key()

    def models_request(self) -> Upstream | None:
        """Return the request that lists the provider's models; None if there is no such list."""
        return Upstream(method="GET", url=f"{self.base_url}/models")

    def decode_models(self, body: object) -> list[str]:
        """Return the names in the list of models."""
        return collect_names(body, *self.models_list)

    def count_tokens_request(self, prompt: Prompt) -> TokenCountRequest | None:
        """Return the request that counts a prompt's tokens; None if the provider has none."""
        return None

    def fallback_adapter(self, error: UpstreamError) -> "Adapter | None":
        """Return an adapter that may succeed after an error that a retry would not fix."""
        return None

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
        """Build the error for an HTTP response that is not a success."""
        try:
            value = json.decode_lenient(body)
        except json.JSONError:
            value = errors.plain_text_body(headers, body)
        info = errors.infer_code(self.parse_error(status, headers, value))
        # Secrets are removed from every field: providers repeat what they were sent anywhere.
        payload = self._error_payload(info, status, f"answered {status} and did not say why.")
        return UpstreamError(
            payload.message,
            status=errors.client_status(status),
            type=payload.type,
            code=payload.code,
            param=payload.param,
            retryable=errors.is_retryable(status, headers, info),
            headers=errors.retry_headers(headers),
        )

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Return the error in a parsed body. Dialects with another shape override this."""
        return errors.parse_error(body)

    def failure_part(self, error: ErrorInfo, status: int | None = None) -> parts.Failure:
        """Return the failure for an error inside an answer.

        `status` is the HTTP status that the error would have had before the answer began.
        """
        error = errors.infer_code(error)
        status = status or errors.infer_status(error)
        payload = self._error_payload(error, status, "broke off and did not say why.")
        return parts.Failure(payload, status=errors.client_status(status))

    def _error_payload(self, error: ErrorInfo, status: int, default: str) -> ErrorPayload:
        """Return an error as the client may see it: without secrets, with the provider's name."""
        return ErrorPayload(
            message=f"{self.provider.name}: {errors.redact(error.message or default)}",
            type=errors.redact(error.type or errors.error_type(status), errors.MAX_NAME_LENGTH),
            code=error.code and errors.redact(error.code, errors.MAX_NAME_LENGTH),
            param=error.param and errors.redact(error.param, errors.MAX_NAME_LENGTH),
        )


TERMINAL_PARTS = frozenset({parts.Finish, parts.Failure})


class Framing(Protocol):
    """Splits the bytes of a stream into chunks, as the decoders in `wire` do.

    Each method returns the chunks that the bytes, or the end of the stream, complete. `feed` may raise ValueError.
    """

    def feed(self, data: bytes, /) -> Iterable[object]: ...

    def close(self) -> Iterable[object]: ...


class Decoder(ABC):
    """Decodes one answer: bytes in, parts out."""

    reasons: ClassVar[dict[str, parts.Reason]] = {}
    """What each of the provider's reasons for the end of an answer means; any other is `stop`."""

    needs_end: ClassVar[bool] = False
    """Whether an answer without its end is never complete, because the protocol has an event for the end."""

    failure_reasons: ClassVar[dict[str, str]] = {}
    """The provider's reasons that mean failure, each with a message."""

    def __init__(self, adapter: Adapter, framing: Framing) -> None:
        self.adapter = adapter
        self.framing = framing
        self.has_calls = False
        """Whether the answer has calls."""
        self.finished = False
        """Whether the reason for the end has been decoded."""
        self.done = False
        """Whether the rest of the stream is ignored."""
        self.failed = False
        """Whether a failure has been decoded."""
        self.text_fast_path: Callable[[bytes], list[str] | None] | None = None
        """Returns the texts in bytes that hold only text deltas like the ones before, or None for
        any other bytes. It is None while the decoder cannot tell (`fast_text.py`)."""
        self._warned_of_output = False
        self.ended_calls: list[parts.Key] = []
        """Calls whose end was seen. Whether they are complete is known only when something
        follows: a truncated answer ends its last call like any other."""

    def is_stream(self, content_type: str) -> bool:
        """Return whether a body of this type is a stream rather than one whole answer."""
        # Servers label streams in many ways, or not at all; only whole answers are surely JSON.
        return "json" not in content_type or "ndjson" in content_type

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that these bytes complete; None means the end of the stream."""
        decoded: list[Part] = []
        try:
            framing = self.framing
            for chunk in framing.close() if data is None else framing.feed(data):
                if self.done:
                    break
                for part in self.decode_chunk(chunk):
                    decoded.append(part)
                    # This runs for every part of a stream: a set lookup is faster than isinstance.
                    if type(part) in TERMINAL_PARTS:
                        self._note_end(part)
        except DECODE_ERRORS as error:
            # After the finish, an incomplete last chunk loses nothing that anybody needs.
            if data is not None or not self.finished:
                self._add_unreadable_failure(error, decoded)
        return move_failure_last(decoded) if self.failed else decoded

    def close(self) -> list[Part]:
        """Return the last parts of a stream; a failure if the stream ended too early."""
        return self._add_missing_end(self.feed(None))

    def feed_whole(self, body: bytes) -> list[Part]:
        """Return the parts of an answer that was not streamed."""
        decoded: list[Part] = []
        try:
            for part in self.decode_body(body):
                decoded.append(part)
                if type(part) in TERMINAL_PARTS:
                    self._note_end(part)
        except DECODE_ERRORS as error:
            self._add_unreadable_failure(error, decoded)
        return self._add_missing_end(move_failure_last(decoded) if self.failed else decoded)

    @abstractmethod
    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Return the parts in one chunk of a stream; may raise ValueError."""

    @abstractmethod
    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Return the parts in a whole answer; may raise ValueError."""

    def truncation_parts(self) -> Iterable[Part]:
        """Return what ends an answer that broke off without a reason."""
        return (self.adapter.failure_part(errors.TRUNCATED),)

    def unsupported_output_parts(self) -> list[Part]:
        """Return a warning about output that has no part, such as an image; once per answer."""
        if self._warned_of_output:
            return []
        self._warned_of_output = True
        message = f"{self.adapter.provider.name} sent output that is neither text nor a call."
        return [parts.Warn("unsupported_output", f"{message} It was dropped.")]

    def complete_calls(self) -> list[Part]:
        """Mark the calls that have ended as complete, because something else begins."""
        ended, self.ended_calls = self.ended_calls, []
        return [parts.Call(key, complete=True) for key in ended]

    def finish_parts(self, raw: str | None, message: str | None = None) -> list[Part]:
        """Return the end of the answer for the provider's reason: a finish, or a failure with a message."""
        if raw in self.failure_reasons:
            return [self.model_failure(message or self.failure_reasons[raw], raw)]
        reason = self.reasons.get(raw or "", "stop")
        if reason in TRUNCATION_REASONS:
            return [parts.Finish(reason, raw)]
        # Many providers say `stop` even for an answer that ends in calls.
        reason = "tool_calls" if self.has_calls and reason == "stop" else reason
        return [*self.complete_calls(), parts.Finish(reason, raw)]

    def model_failure(self, message: str, code: str) -> parts.Failure:
        """Return the failure for an answer that cannot be used."""
        return self.adapter.failure_part(ErrorInfo(message, "model_error", code))

    def _note_end(self, part: Part) -> None:
        if isinstance(part, parts.Finish):
            self.finished = True
        else:
            self.done = self.failed = True

    def _add_unreadable_failure(self, error: Exception, decoded: list[Part]) -> None:
        message = f"sent something that cannot be read: {str(error)[:200]}"
        decoded.append(self.model_failure(message, "upstream_invalid"))
        self.done = True

    def _add_missing_end(self, decoded: list[Part]) -> list[Part]:
        if not (self.finished or self.done):
            decoded.extend(self.truncation_parts())
            self.done = True
        return decoded


def move_failure_last(decoded: list[Part]) -> list[Part]:
    """Return the parts up to the failure, then the usage that came after it, then the failure."""
    # The synthesizer accepts nothing after a failure, but the tokens have been paid for.
    for index, part in enumerate(decoded):
        if isinstance(part, parts.Failure):
            usage = [other for other in decoded[index:] if isinstance(other, parts.Usage)]
            return [*decoded[:index], *usage, part]
    return decoded


class JsonReader(Generic[T]):
    """Decodes JSON into one msgspec type. Unknown fields are ignored.

    What msgspec rejects is decoded again by slower and more lenient steps: first unpaired
    surrogates are accepted, then `normalize`, if given, may fix the types of fields.
    """

    def __init__(self, kind: type[T], normalize: Callable[[object], object] | None = None) -> None:
        self._kind = kind
        self._normalize = normalize
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> T:
        """Decode one JSON text; raises ValueError."""
        if len(data) > json.LARGE_FOREIGN:
            json.check_foreign(data)
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # msgspec rejects unpaired surrogates; providers send them when they split an emoji.
            raw = json.decode_lenient(data)
        try:
            return msgspec.convert(raw, self._kind)
        except msgspec.ValidationError:
            if self._normalize is None:
                raise
            return msgspec.convert(self._normalize(raw), self._kind, strict=False)


DECODE_ERRORS = (ValueError, RecursionError)
"""What decoding invalid bytes raises. The errors of msgspec and of `wire` are ValueErrors."""


TRUNCATION_REASONS: frozenset[parts.Reason] = frozenset({"length", "content_filter"})
"""The reasons after which the last item is incomplete, even if the provider ended it."""


def collect_names(body: object, group: str, field: str) -> list[str]:
    """Return one string field of every object in the list `body[group]`."""
    # One odd entry must not hide the others.
    names = (as_object(entry).get(field) for entry in as_array(as_object(body).get(group)))
    return [name for name in names if isinstance(name, str)]

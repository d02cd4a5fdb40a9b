"""Our exceptions, by whose fault they are, and the error object of the protocol."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Literal, cast

from msgspec import UNSET, UnsetType

from antiphon.protocol.struct import InvalidValueError, ProtocolStruct

ErrorType = Literal[
    "server_error",
    "invalid_request",
    "not_found",
    "model_error",
    "too_many_requests",
    "authentication_error",
    "permission_denied",
]
"""The specification's five types, and two for HTTP 401 and 403."""

ErrorCode = Literal[
    "invalid_api_key",
    "insufficient_quota",
    "context_length_exceeded",
    "invalid_model",
    "content_filter",
    "tool_execution_failed",
    "timeout",
    "rate_limit_exceeded",
]
"""Codes that clients may test for; any other string may be a code too."""

HTTP_STATUS: Mapping[str, int] = {
    "server_error": 500,
    "invalid_request": 400,
    "not_found": 404,
    "model_error": 500,
    "too_many_requests": 429,
    "authentication_error": 401,
    "permission_denied": 403,
}


class ErrorPayload(ProtocolStruct):
    """The error object in an HTTP body, an `error` event or a WebSocket message."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    # For WebSocket errors: an HTTP response has real headers.
    headers: dict[str, str] | UnsetType = UNSET


LOGGABLE_WORD = re.compile(r"[\w.:-]{1,64}", re.ASCII)
"""A code or type that is safe to log, although others wrote it."""


def describe_for_log(status: int, error: ErrorPayload) -> str:
    """Return the status and the code or type of an error, for a log."""
    # Never the message: it may quote the prompt.
    named = (name for name in (error.code, error.type) if name and LOGGABLE_WORD.fullmatch(name))
    return f"{status} {next(named, 'error')}"


def suggest_closest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" with the known name that is most like a name; nothing if none is."""
    close = difflib.get_close_matches(name[:80], known, 1)
    return f" Did you mean '{close[0]}'?" if close and close[0] != name else ""


def end_sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends in punctuation."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


class AntiphonError(Exception):
    """The base class of all our exceptions."""


class ProtocolError(AntiphonError):
    """A violation of the protocol's rules."""


class LocalProtocolError(ProtocolError):
    """A violation by Antiphon itself: a bug."""


class RemoteProtocolError(ProtocolError):
    """A violation by the other side: a stream or message that the rules reject."""


class RequestError(AntiphonError):
    """An error of the caller; the message says what was wrong, where, and what to do."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: ErrorType = "invalid_request",
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.payload = ErrorPayload(message=message, type=type, param=param, code=code)
        self.status = HTTP_STATUS[type] if status is None else status
        self.headers: Mapping[str, str] = {}

    def with_retry_after(self, seconds: int) -> "RequestError":
        """Set the `retry-after` header and return the error."""
        self.headers = {"retry-after": str(seconds)}
        return self

    @classmethod
    def from_invalid_value(cls, error: InvalidValueError) -> "RequestError":
        """Return the error of a field with an invalid value."""
        # The decoder has one sentence for a missing field; clients distinguish it by the code.
        missing = error.reason.startswith("this field is required")
        code = "missing_required_parameter" if missing else "invalid_value"
        place = f"'{error.path}'" if error.path else "body"
        return cls(f"Invalid {place}: {error.reason}.", param=error.path or None, code=code)


class UpstreamError(AntiphonError):
    """An error of the provider: its status, its message, and whether a retry may help."""

    def __init__(  # noqa: PLR0913 - one parameter per field of an error
        self,
        message: str,
        *,
        # 502: the gateway is fine, the server behind it is not.
        status: int = 502,
        type: str = "model_error",
        code: str | None = None,
        param: str | None = None,
        retryable: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.payload = ErrorPayload(message=message, type=type, code=code, param=param)
        self.status = status
        self.retryable = retryable
        self.headers: Mapping[str, str] = headers or {}


def answer_too_large_error(message: str) -> UpstreamError:
    """Return the error for an answer that exceeds a limit; what has arrived of it is kept."""
    return UpstreamError(f"The model's answer is too large: {message}", code="answer_too_large")


class StoreError(AntiphonError):
    """An error of the response store."""


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of an error that was reported, and of the errors that led to it.

    A traceback keeps every frame it passed, and with them the request's body. Often one of those frames refers back to
    the error; only the garbage collector could then free them, and it runs by the number of objects, not by their size.
    """
    pending, done = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in done:
            continue
        done.add(id(one))
        one.__traceback__ = None
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", one).exceptions

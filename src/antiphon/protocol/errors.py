"""Everything that can go wrong, by whose fault it is; and how the protocol says so."""

import re
from collections.abc import Mapping
from typing import Literal, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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
"""The specification's five, and the two that every server needs beside them."""

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
"""Codes with a meaning of their own; any other string may be a code too."""

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
    """An error as the protocol writes it: in an HTTP body, an `error` event, a socket message."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] | UnsetType = UNSET

    @classmethod
    def invalid_param(cls, param: str, message: str) -> "ErrorPayload":
        """Blame one parameter of the request."""
        return cls(type="invalid_request", param=param, message=message)

    def with_code(self, code: ErrorCode | str) -> "ErrorPayload":
        """Return the same error with a code."""
        return replace(self, code=code)


LOGGABLE_WORD = re.compile(r"[\w.:-]{1,64}", re.ASCII)
"""What a log may repeat of what others wrote."""


def describe_for_log(status: int, error: ErrorPayload) -> str:
    """Say what broke as a log may say it: an error's own words may quote a prompt."""
    named = (name for name in (error.code, error.type) if name and LOGGABLE_WORD.fullmatch(name))
    return f"{status} {next(named, 'error')}"


class AntiphonError(Exception):
    """The root of all our errors."""


class ProtocolError(AntiphonError):
    """Someone broke the protocol's rules."""


class LocalProtocolError(ProtocolError):
    """We did: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """They did: a stream or message that the rulebook rejects."""


class RequestError(AntiphonError):
    """The caller's fault: what was wrong, where, and what to do."""

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
        """Return the same error with the advice to try again."""
        self.headers = {"retry-after": str(seconds)}
        return self

    @classmethod
    def from_invalid_value(cls, error: InvalidValueError) -> "RequestError":
        """Blame the field that has the wrong shape."""
        missing = error.reason.startswith("this field is required")
        code = "missing_required_parameter" if missing else "invalid_value"
        place = f"'{error.path}'" if error.path else "body"
        return cls(f"Invalid {place}: {error.reason}.", param=error.path or None, code=code)


class UpstreamError(AntiphonError):
    """The provider's fault: its status, its words, and whether trying again may help."""

    def __init__(  # noqa: PLR0913 - everything a provider may say
        self,
        message: str,
        *,
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


class StoreError(AntiphonError):
    """What holds the responses could not."""


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of an error that was reported, and of the errors that led to it.

    A traceback keeps every frame it passed, and with them the request's body. Often one of those
    frames refers back to the error; only the garbage collector could then free them, and it runs
    by the number of objects, not by their size.
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

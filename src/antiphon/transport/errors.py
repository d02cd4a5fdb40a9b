"""What can go wrong on the way to an upstream; `who` is the name to blame."""

from antiphon.core.errors import UpstreamError

INVALID = "upstream_invalid"
CUT = "upstream_cut"
UNREACHABLE = "upstream_unreachable"


class Invalid(Exception):
    """An answer is not HTTP as it was asked for."""


def broken(who: str, message: str, code: str = INVALID) -> UpstreamError:
    """Make the error for an upstream that does not keep to HTTP, or leaves."""
    return UpstreamError(f"{who}: {message}", status=502, code=code, retryable=True)


def late(who: str, message: str) -> UpstreamError:
    """Make the error for an upstream that takes too long."""
    return UpstreamError(f"{who}: {message}", status=504, code="timeout", retryable=True)


def unreachable(who: str, message: str, *, retryable: bool = False) -> UpstreamError:
    """Make the error for an upstream that cannot be reached."""
    return UpstreamError(f"{who}: {message}", status=502, code=UNREACHABLE, retryable=retryable)

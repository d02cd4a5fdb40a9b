"""What can go wrong on the way to an upstream; `who` is the name to blame."""

import os
import ssl

from antiphon.protocol.errors import UpstreamError

INVALID = "upstream_invalid"
CUT = "upstream_cut"
UNREACHABLE = "upstream_unreachable"


class InvalidResponseError(Exception):
    """An answer is not HTTP as it was asked for."""


def bad_response_error(peer_name: str, message: str, code: str = INVALID) -> UpstreamError:
    """Make the error for an upstream that does not keep to HTTP, or leaves."""
    return UpstreamError(f"{peer_name}: {message}", status=502, code=code, retryable=True)


def timeout_error(peer_name: str, message: str, *, retryable: bool = True) -> UpstreamError:
    """Make the error for an upstream that takes too long."""
    # Whoever asked us may well try again by itself; a request that is being worked on is paid for.
    advice = {} if retryable else {"x-should-retry": "false"}
    return UpstreamError(
        f"{peer_name}: {message}", status=504, code="timeout", retryable=retryable, headers=advice
    )


def unreachable_error(peer_name: str, message: str, *, retryable: bool = False) -> UpstreamError:
    """Make the error for an upstream that cannot be reached."""
    return UpstreamError(
        f"{peer_name}: {message}", status=502, code=UNREACHABLE, retryable=retryable
    )


def connect_error(peer_name: str, error: OSError | UnicodeError, where: str = "") -> UpstreamError:
    """Make the error for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"{error.verify_message} (SSL_CERT_FILE names the authorities to trust)"
        return unreachable_error(peer_name, f"cannot be trusted{where}: {reason}.")
    return unreachable_error(
        peer_name, f"cannot be reached{where}: {_reason(error)}.", retryable=True
    )


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError):
        if isinstance(error, ssl.SSLError):
            return f"no TLS ({error.reason or 'the handshake failed'})"
        if error.errno and error.errno > 0:
            return os.strerror(error.errno).lower()
    return (getattr(error, "strerror", None) or str(error) or "the connection was lost").lower()

"""Why a provider could not be asked: errors that name it and the remedy."""

from antiphon.agents.turn import Turn
from antiphon.core.errors import UpstreamError
from antiphon.engine.models import Model, PartSink


class UnavailableModel(Model):
    """A model that cannot be asked; another may be, in its place."""

    def __init__(self, name: str, reason: UpstreamError) -> None:
        self.name = self.origin = name
        self._reason = reason

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Say why not."""
        del turn, sink
        raise self._reason


def broken_adapter_error(name: str) -> UpstreamError:
    """Say that a provider cannot be asked because its adapter is broken."""
    message = f"{name}: its adapter is broken."
    return UpstreamError(message, status=500, type="server_error", code="server_error")


def transform_hook_error(name: str, what: str) -> UpstreamError:
    """Say that a provider cannot be asked because the user's own function is broken."""
    message = f"{name}: its transform_request {what}."
    return UpstreamError(message, status=500, type="server_error", code="server_error")


def credentials_error(name: str, error: UpstreamError) -> UpstreamError:
    """Say whose credentials are not there."""
    return UpstreamError(
        f"{name}: {error}",
        status=error.status,
        type=error.payload.type,
        code=error.payload.code,
        retryable=error.retryable,
    )


def missing_api_key_error(name: str, variable: str) -> UpstreamError:
    """Say that a provider cannot be asked for want of a key."""
    return UpstreamError(
        f"{name}: {variable} is not set, or holds no key. "
        "Set it to this provider's key, and start again.",
        status=401,
        type="authentication_error",
        code="missing_credentials",
    )

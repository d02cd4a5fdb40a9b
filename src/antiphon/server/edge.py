"""What every request passes: its id, its key, its line in the log, and the shape of its errors.

The one place of the server that turns an exception into an HTTP body.
"""

import hmac
import logging
import re
import time
from collections.abc import Mapping
from urllib.parse import quote

from antiphon.core.errors import ErrorPayload, RequestError, StoreError, UpstreamError
from antiphon.engine.ids import new_id
from antiphon.server.http import App, ClientGone, Message, Receive, Scope, Send, header, send_json
from antiphon.server.settings import Settings
from antiphon.wire.dialects import Dialect, OpenAIDialect

access = logging.getLogger("antiphon.access")
logger = logging.getLogger("antiphon.server")

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need no key."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
UNSTORED = ErrorPayload(
    message="Responses cannot be stored at the moment. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)
CLIENT_GONE = 499
"""What the log shows for a client that left before it was answered; nobody is sent this."""


class Edge:
    """The outermost layer of the application."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._key = settings.api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, and answer for whatever goes wrong."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = Answer(scope, send)
        try:
            self._authorize(scope)
            await self._app(scope, receive, answer.send)
        except ClientGone:
            answer.status = CLIENT_GONE
        except RequestError as error:
            await answer.refuse(error.payload, answer.dialect.status(error), error.headers)
        except StoreError:
            logger.exception("%s found the store failing", answer.request_id)
            await answer.refuse(UNSTORED, 503, {"retry-after": "1"})
        except UpstreamError as error:
            await answer.refuse(error.payload, error.status, error.headers)
        except Exception:
            # A process boundary: what nobody expected is our fault, and nobody sees a traceback.
            logger.exception("%s failed", answer.request_id)
            if answer.status:
                raise
            message = f"Something broke on our side. The log knows it as {answer.request_id}."
            broken = ErrorPayload(message=message, type="server_error", code="internal_error")
            await answer.refuse(broken, 500)
        finally:
            answer.log()

    def _authorize(self, scope: Scope) -> None:
        if self._key is None or route_path(scope) in OPEN:
            return
        scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
        known = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._key.encode())
        if scheme.lower() != "bearer" or not known:
            error = RequestError(
                "This server needs a key. Send 'Authorization: Bearer <key>'.",
                type="authentication_error",
                code="invalid_api_key",
            )
            error.headers = {"www-authenticate": "Bearer"}
            raise error


class Answer:
    """One answer on its way out: its id, its status, its size."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._begun = time.perf_counter()
        self._size = 0
        self.status = 0
        given = header(scope, b"x-request-id") or ""
        self.request_id = given if REQUEST_ID.fullmatch(given) else new_id("req")
        self.dialect = door(scope)()

    async def send(self, message: Message) -> None:
        """Pass a message on, with the request's id in the headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            line = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), line]}
        else:
            self._size += len(message.get("body", b""))
        try:
            await self._send(message)
        except OSError as error:
            raise ClientGone from error

    async def refuse(
        self, payload: ErrorPayload, status: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with an error in the door's dialect."""
        await send_json(self.send, self.dialect.error(payload, detail(payload)), status, headers)

    def log(self) -> None:
        """Write the request's line: never any content, nor the query."""
        took = (time.perf_counter() - self._begun) * 1000
        line = "%s %s %d %.1fms %dB %s"
        method, path = self._scope["method"], quote(self._scope["path"])
        access.info(line, method, path, self.status, took, self._size, self.request_id)


def route_path(scope: Scope) -> str:
    """Return the path inside this application, wherever it is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def door(scope: Scope) -> type[Dialect]:
    """Return the dialect of the door that a request came through."""
    return OpenAIDialect if route_path(scope).startswith("/openai") else Dialect


def detail(payload: ErrorPayload) -> str:
    """Return the short form of an error that Xaibo's clients know."""
    if payload.code == "model_not_found":
        return "model not found"
    if payload.code == "missing_required_parameter" and payload.param in ("model", "input"):
        return "input and model are required"
    if payload.code == "response_not_found":
        return "Response not found"
    if payload.code == "not_a_background_response" and payload.param == "response_id":
        return "Only background responses can be cancelled"
    return payload.message

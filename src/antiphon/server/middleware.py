"""What every request passes: its id, its key, its line in the log, and the shape of its errors.

The one place of the server that turns an exception into an HTTP body. A request that wants to
become a WebSocket passes here too, and one that must not is answered like any other.
"""

import hmac
import ipaddress
import logging
import re
import time
from functools import lru_cache
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException

from antiphon.engine.persistence import new_id
from antiphon.protocol.errors import ErrorPayload, RequestError, drop_tracebacks
from antiphon.server.asgi import (
    DIRECT_WRITE_KEY,
    AsgiApp,
    ClientDisconnected,
    DirectWriter,
    Message,
    Receive,
    Scope,
    Send,
    WriteChunk,
    header,
    http_send,
    send_json,
)
from antiphon.server.config.address import is_loopback
from antiphon.server.errors import ReportedError, report_error
from antiphon.server.settings import Settings
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.openresponses import Dialect, OpenAIDialect

access_log = logging.getLogger("antiphon.access")

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no key."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
RESPONSE_KEY = "antiphon.answer"
SWITCHING_PROTOCOLS = 101
CLIENT_CLOSED_REQUEST = 499
"""What the log shows for a client that left before it was answered; nobody is sent this."""


class GatewayMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: AsgiApp, settings: Settings) -> None:
        self._app = app
        self._api_key = settings.api_key
        self._allowed_origins = frozenset(settings.allowed_origins)
        self._allowed_hosts = frozenset(settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, and answer for whatever goes wrong."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        answer = ResponseSender(scope, http_send(scope, send))
        try:
            self._check_host(scope)
            self._check_origin(scope)
            self._check_api_key(scope)
            await self._app(scope, receive, answer.send)
        except ClientDisconnected as gone:
            answer.status = CLIENT_CLOSED_REQUEST
            drop_tracebacks(gone)
        except Exception as error:
            # A process boundary: nobody but the log ever sees a traceback.
            failure = answer.explain(error)
            drop_tracebacks(error)
            if answer.status:
                raise
            await answer.send_error(failure)
        finally:
            answer.log_access()
            scope.pop(RESPONSE_KEY, None)  # or each would keep the other until the collector comes

    def _check_host(self, scope: Scope) -> None:
        """Refuse a name that a stranger's web page may have given this machine.

        A page can have its own name lead here and then ask as if it were ours; without a key that
        would be enough to read what is stored and to spend what the providers' keys are worth.
        """
        here = (scope.get("server") or ("",))[0]
        if self._api_key is not None or not is_loopback(here):
            return
        host = parse_host(header(scope, b"host") or here)
        if host not in self._allowed_hosts and is_public_name(host):
            raise RequestError(
                f"'{host[:80]}' is no name of this machine. Use localhost, set a key for the "
                "server, or add the name to 'allowed_hosts'.",
                type="permission_denied",
                code="host_not_allowed",
            )

    def _check_origin(self, scope: Scope) -> None:
        """Refuse a web page that would use its reader's own network to open a WebSocket."""
        if scope["type"] != "websocket":
            return
        origin = header(scope, b"origin")
        if origin is not None and origin not in self._allowed_origins:
            raise RequestError(
                "This web page may not open a WebSocket here. Add it to 'allowed_origins'.",
                type="permission_denied",
                code="origin_not_allowed",
            )

    def _check_api_key(self, scope: Scope) -> None:
        if self._api_key is None or route_path(scope) in PUBLIC_PATHS:
            return
        scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
        known = hmac.compare_digest(
            given.strip().encode("utf-8", "replace"), self._api_key.encode()
        )
        if scheme.lower() != "bearer" or not known:
            error = RequestError(
                "This server needs a key. Send 'Authorization: Bearer <key>'.",
                type="authentication_error",
                code="invalid_api_key",
            )
            error.headers = {"www-authenticate": "Bearer"}
            raise error


class ResponseSender:
    """One answer on its way out: its id, its status, its size."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._started_at = time.perf_counter()
        self._size = 0
        self.status = 0
        given = header(scope, b"x-request-id") or ""
        self.request_id = given if REQUEST_ID.fullmatch(given) else new_id("req")
        scope["antiphon.request_id"] = self.request_id
        self.dialect = door_dialect(scope)()
        scope[RESPONSE_KEY] = self

        offered = scope.pop(DIRECT_WRITE_KEY, None)  # taken, or they would keep each other too
        self.direct_writer: DirectWriter | None = (
            offered[1] if offered and offered[0] == send else None
        )
        """A way to send at once, if the server offers one."""

    async def send(self, message: Message) -> None:
        """Pass a message on, with the request's id in the headers."""
        if message["type"] in ("http.response.start", "websocket.accept"):
            self.status = message.get("status", SWITCHING_PROTOCOLS)
            line = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), line]}
        elif message["type"] == "websocket.close" and not self.status:
            self.status = 403  # what the client of a WebSocket sees that was never opened
        else:
            self._size += len(message.get("body") or message.get("text") or b"")
        try:
            await self._send(message)
        except OSError as error:
            raise ClientDisconnected from error

    def explain(self, error: Exception) -> ReportedError:
        """Return what the caller is told of an error; the router's errors become ours."""
        known = routing_error(self._scope, error) if isinstance(error, HTTPException) else error
        return report_error(known, self.dialect, self.request_id)

    async def send_error(self, reported: ReportedError) -> None:
        """Answer with an error in the door's dialect."""
        body = self.dialect.encode_error(reported.payload, short_detail(reported.payload))
        await send_json(self.send, body, reported.status, reported.headers)

    def log_access(self) -> None:
        """Write the request's line, if it is read: never any content, nor the query."""
        if not access_log.isEnabledFor(logging.INFO):
            return
        took = (time.perf_counter() - self._started_at) * 1000
        size = self._size + (self.direct_writer.size if self.direct_writer else 0)
        line = "%s %s %d %.1fms %dB %s"
        method, path = self._scope.get("method", "WEBSOCKET"), quote(self._scope["path"])
        access_log.info(line, method, path, self.status, took, size, self.request_id)


def direct_write(scope: Scope, send: Send) -> WriteChunk | None:
    """Return a way to send at once, if nobody stands between the edge and us."""
    answer = scope.get(RESPONSE_KEY)
    way = (
        answer.direct_writer if isinstance(answer, ResponseSender) and send == answer.send else None
    )
    return way.write if way else None


@lru_cache(maxsize=64)  # most clients use the same few names
def parse_host(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


@lru_cache(maxsize=64)
def is_public_name(host: str) -> bool:
    """Tell whether a host is one that anybody could have named: not an address, nor a bare word."""
    if "." not in host or host.endswith(".localhost"):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def routing_error(scope: Scope, error: HTTPException) -> RequestError:
    """Turn the router's refusals into ours: an unknown path, a wrong method."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{scope['method']} is not possible here. Use {allowed}."
        refused = RequestError(message, code="method_not_allowed", status=405)
        refused.headers = {"allow": allowed}
        return refused
    message = f"There is nothing at {scope['path']}. Responses are made by POST /v1/responses."
    return RequestError(message, type="not_found", code="not_found")


def route_path(scope: Scope) -> str:
    """Return the path inside this application, wherever it is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def door_dialect(scope: Scope) -> type[Dialect]:
    """Return the dialect of the door that a request came through; a chat is one at every door."""
    path = route_path(scope)
    if "/chat/completions" in path:
        return ChatDialect
    return OpenAIDialect if path.startswith("/openai") else Dialect


def short_detail(payload: ErrorPayload) -> str:
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

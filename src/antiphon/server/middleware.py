"""The outermost middleware: request ids, authentication, access log, error responses.

The one place of the server that turns an exception into an HTTP response. WebSocket handshakes pass
here too; a rejected one gets the same HTTP response.
"""

import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from msgspec.structs import replace
from starlette.exceptions import HTTPException

from antiphon.protocol.errors import (
    ErrorPayload,
    RequestError,
    StoreError,
    UpstreamError,
    drop_tracebacks,
    suggest_closest,
)
from antiphon.server import asgi
from antiphon.server.asgi import AsgiApp, DirectWriter, Message, Receive, Scope, Send, WriteChunk
from antiphon.server.cors import CrossOriginPolicy, Headers
from antiphon.server.settings import Settings
from antiphon.store.ids import new_id
from antiphon.transport.proxy import is_loopback
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.openresponses import Dialect, OpenAIDialect

logger = logging.getLogger("antiphon.server")

STORE_UNAVAILABLE = ErrorPayload(
    message="Responses cannot be stored at the moment. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)


class ReportedError(NamedTuple):
    """An error in the protocol's format, with its HTTP status and headers."""

    payload: ErrorPayload
    status: int
    headers: Mapping[str, str]


def report_error(error: Exception, dialect: Dialect, request_id: str, prefix: str = "/v1") -> ReportedError:
    """Return what a client may know of an error; our own failures are logged with traceback."""
    match error:
        case RequestError():
            # Advice names paths below /v1; the client may use another door.
            payload = replace(error.payload, message=error.payload.message.replace(" /v1/", f" {prefix}/"))
            return ReportedError(payload, dialect.error_status(error), error.headers)
        case UpstreamError():
            return ReportedError(error.payload, error.status, error.headers)
        case StoreError():
            # Mostly a full disk or a locked database, which may be over in a second.
            logger.error("%s: the store failed", request_id, exc_info=error)
            return ReportedError(STORE_UNAVAILABLE, 503, {"retry-after": "1"})
        case _:
            # The exception's own message may contain prompts, keys or paths: only the log has it.
            logger.error("%s failed", request_id, exc_info=error)
            message = f"Internal error. The server's log has it under the id {request_id}."
            payload = ErrorPayload(message=message, type="server_error", code="internal_error")
            return ReportedError(payload, 500, {})


PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/docs/docs.css", "/docs/docs.js"})
"""Paths that need no key."""

# A client's id goes into the log and a header: no spaces, quotes or control characters.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
SWITCHING_PROTOCOLS = 101


class GatewayMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: AsgiApp, settings: Settings) -> None:
        self._app = app
        self._api_key = settings.api_key
        self._cross_origin = CrossOriginPolicy(settings.allowed_origins)
        self._allowed_hosts = frozenset(settings.allowed_hosts)
        self._body_budget = asgi.ByteBudget(settings.total_body_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, and report every exception."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        response = ResponseSender(scope, asgi.http_send(scope, send), self._cross_origin.headers(scope))
        share = scope[asgi.BODY_BUDGET_KEY] = asgi.BudgetShare(self._body_budget)
        try:
            self._check_host(scope)
            self._check_origin(scope)
            if self._cross_origin.is_preflight(scope):
                await self._cross_origin.answer_preflight(scope, response.send)
                return
            self._check_api_key(scope)
            await self._app(scope, receive, response.send)
        except asgi.ClientDisconnected as error:
            response.status = asgi.CLIENT_CLOSED_REQUEST
            drop_tracebacks(error)
        except Exception as error:
            # A process boundary: only the log shows a traceback.
            reported = response.report(error)
            drop_tracebacks(error)
            if response.status:  # the response has started; the server must close the connection
                raise
            await response.send_error(reported)
        finally:
            response.log_access()
            share.resize(0)
            # It refers to the scope's owner: only the garbage collector could free both.
            scope.pop(asgi.DIRECT_WRITE_KEY, None)

    def _check_host(self, scope: Scope) -> None:
        """Reject foreign host names on a local server without a key (DNS rebinding).

        A web page can resolve its own domain to 127.0.0.1, and then reads stored responses and
        spends the providers' credit as a same-origin page.
        """
        address = (scope.get("server") or ("",))[0]
        if self._api_key is not None or not is_loopback(address):
            return
        host = parse_host(asgi.header(scope, b"host") or address)
        if host not in self._allowed_hosts and is_public_name(host):
            advice = "Use localhost, start the server with an API key, or name the host in Settings(allowed_hosts=[…])."
            message = f"The host '{host[:80]}' is not allowed. {advice}"
            raise RequestError(message, type="permission_denied", code="host_not_allowed")

    def _check_origin(self, scope: Scope) -> None:
        """Reject WebSockets from other web pages; browsers do not apply CORS to them."""
        origin = asgi.header(scope, b"origin") if scope["type"] == "websocket" else None
        if origin is not None and not self._cross_origin.allows(origin):
            message = "WebSockets from this web page are not allowed. Name it in allowed_origins."
            raise RequestError(message, type="permission_denied", code="origin_not_allowed")

    def _check_api_key(self, scope: Scope) -> None:
        if self._api_key is None or route_path(scope) in PUBLIC_PATHS:
            return
        scheme, _, given = (asgi.header(scope, b"authorization") or "").partition(" ")
        # Constant time: the time of a comparison must not reveal a prefix of the key.
        token = given.strip().encode("utf-8", "replace")
        matches = hmac.compare_digest(token, self._api_key.encode())
        if scheme.lower() != "bearer" or not matches:
            message = "This server requires an API key. Send 'Authorization: Bearer <key>'."
            if scheme.lower() == "bearer" and token:
                message = "This API key is not valid. Send the key of this server: 'Authorization: Bearer <key>'."
            error = RequestError(message, type="authentication_error", code="invalid_api_key")
            error.headers = {"www-authenticate": "Bearer"}
            raise error


class ResponseSender:
    """Sends one response: adds its request id and other headers, records its status and size."""

    def __init__(self, scope: Scope, send: Send, headers: Headers) -> None:
        self._scope = scope
        self._send = send
        self._headers = headers
        """Headers of every response to this request."""
        self._started_at = time.perf_counter()
        self._size = 0
        self.status = 0
        given = asgi.header(scope, b"x-request-id") or ""
        self.request_id = given if REQUEST_ID.fullmatch(given) else new_id("req")
        scope["antiphon.request_id"] = self.request_id
        self.dialect = door_dialect(scope)()
        direct_send, writer = scope.get(asgi.DIRECT_WRITE_KEY, (None, None))
        self._direct_writer: DirectWriter | None = writer if direct_send == send else None
        """Bypasses `send`; None if the server has none, or if another middleware wraps `send`."""
        scope[asgi.DIRECT_WRITE_KEY] = (self.send, self._direct_writer)

    async def send(self, message: Message) -> None:
        """Send a message; the first one gets the request id as a header."""
        if message["type"] in ("http.response.start", "websocket.accept"):
            self.status = message.get("status", SWITCHING_PROTOCOLS)
            line = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), line, *self._headers]}
        elif message["type"] == "websocket.close" and not self.status:
            self.status = 403  # the server sends it when a WebSocket is closed before it is accepted
        else:
            self._size += len(message.get("body") or message.get("text") or b"")
        # The ASGI specification has servers raise OSError after a disconnect.
        try:
            await self._send(message)
        except OSError as error:
            raise asgi.ClientDisconnected from error

    def report(self, error: Exception) -> ReportedError:
        """Return an error as the client sees it; Starlette's routing errors become ours."""
        if isinstance(error, HTTPException):
            error = routing_error(self._scope, error)
        return report_error(error, self.dialect, self.request_id, client_prefix(self._scope))

    async def send_error(self, reported: ReportedError) -> None:
        body = self.dialect.encode_error(reported.payload, short_detail(reported.payload))
        await asgi.send_json(self.send, body, reported.status, reported.headers)

    def log_access(self) -> None:
        """Write a line to the access log; never any content, nor the query."""
        if not asgi.access_log.isEnabledFor(logging.INFO):
            return
        milliseconds = (time.perf_counter() - self._started_at) * 1000
        size = self._size + (self._direct_writer.size if self._direct_writer else 0)
        # Quoted, so that a path with a line break cannot forge a line of the log.
        method, path = self._scope.get("method", "WEBSOCKET"), quote(self._scope["path"])
        values = (method, path, self.status, milliseconds, size, self.request_id)
        # Not `info`, which looks for its caller's file and line: the slowest part of a record.
        log, line = asgi.access_log, "%s %s %d %.1fms %dB %s"
        log.handle(log.makeRecord(log.name, logging.INFO, "", 0, line, values, None))


def direct_write(scope: Scope, send: Send) -> WriteChunk | None:
    """Return the function that bypasses `send`; None if another middleware wraps `send`."""
    direct_send, writer = scope.get(asgi.DIRECT_WRITE_KEY, (None, None))
    return writer.write if writer and direct_send == send else None


@lru_cache(maxsize=64)  # most clients use the same few names
def parse_host(host: str) -> str:
    """Return the host in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


@lru_cache(maxsize=64)
def is_public_name(host: str) -> bool:
    """Return whether a host may be somebody's domain: neither an IP address nor a single label."""
    # DNS rebinding needs a public domain; names like `localhost` or `gpu-box` cannot be registered.
    if "." not in host or host.endswith(".localhost"):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def routing_error(scope: Scope, error: HTTPException) -> RequestError:
    """Convert Starlette's error for an unknown path or a wrong method."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{scope['method']} is not supported here. Use {allowed}."
        converted = RequestError(message, code="method_not_allowed", status=405)
        converted.headers = {"allow": allowed}
        return converted
    message = f"There is nothing at {str(scope['path'])[:200]}.{suggest_path(scope)}"
    return RequestError(message, type="not_found", code="not_found")


DOOR_PREFIXES = ("/openai/v1", "/openai", "/v1")
"""The prefixes of all doors, longer ones first."""
PROVIDER_APIS = (
    "audio batches embeddings evals files fine_tuning images moderations realtime uploads vector_stores videos"
)
UNAVAILABLE_APIS = {
    **dict.fromkeys(PROVIDER_APIS.split()),
    "completions": "Text completions are not supported: use POST /v1/chat/completions or POST /v1/responses.",
    "messages": "The Messages API is not supported: use POST /v1/responses.",
    **dict.fromkeys(("assistants", "threads"), "The Assistants API is not supported: use POST /v1/responses."),
}
"""Paths that clients of other APIs request, and what to use instead; None for what only providers have."""


def suggest_path(scope: Scope) -> str:
    """Return what to do about an unknown path."""
    path, root = route_path(scope)[:200], str(scope.get("root_path", ""))
    door = client_prefix(scope).removeprefix(root)
    known: list[str] = [route.path for route in scope["app"].routes]
    name = path
    while prefix := next((prefix for prefix in DOOR_PREFIXES if name.startswith(f"{prefix}/")), None):
        name = name.removeprefix(prefix)
    if path not in (name, door + name):
        return f" Your base URL already ends in {door}: use /v1{name}."
    if path == name and f"{door}/{name.split('/')[1]}" in known:
        return f" Your base URL has to end in {door}: use /v1{name}."
    if (kind := name.split("/")[1]) in UNAVAILABLE_APIS:
        only_provider = f"This server has no {kind.replace('_', ' ')}: call the provider's own API."
        return f" {UNAVAILABLE_APIS[kind] or only_provider}"
    # Only the names at the same door are compared: the common prefix would make all of them similar.
    base = path.removesuffix(name)
    meant = suggest_closest(name, [one.removeprefix(base) for one in known if one.startswith(f"{base}/")])
    return meant.replace("'/", f"'{root}{base}/") or " Create responses with POST /v1/responses."


def client_prefix(scope: Scope) -> str:
    """Return the prefix of a request's door as the client writes it; that of /v1 outside of all doors."""
    path = route_path(scope)
    door = next((prefix for prefix in DOOR_PREFIXES if path.startswith(f"{prefix}/")), "/v1")
    return str(scope.get("root_path", "")) + door


def route_path(scope: Scope) -> str:
    """Return the path inside this application, which may be mounted under a prefix."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def door_dialect(scope: Scope) -> type[Dialect]:
    """Return the dialect of a request's door; chat completions have their own at every door."""
    path = route_path(scope)
    if "/chat/completions" in path:
        return ChatDialect
    return OpenAIDialect if path.startswith("/openai") else Dialect


def short_detail(payload: ErrorPayload) -> str:
    """Return the value of `detail`, which Xaibo's clients compare with fixed strings."""
    if payload.code == "model_not_found":
        return "model not found"
    if payload.code == "missing_required_parameter" and payload.param in ("model", "input"):
        return "input and model are required"
    if payload.code == "response_not_found":
        return "Response not found"
    if payload.code == "not_a_background_response" and payload.param == "response_id":
        return "Only background responses can be cancelled"
    return payload.message

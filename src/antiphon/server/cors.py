"""Cross-origin requests: which web pages may use the server (the CORS protocol of the Fetch standard).

The gateway's middleware adds these headers to the head of each response. Starlette's own middleware would wrap `send`,
and so cost every event of a stream; it leaves out errors that are raised outside of it; and it cannot name the
setting that is missing.
"""

import logging
import re
from collections.abc import Sequence

from antiphon.protocol.struct import InvalidValueError
from antiphon.server import asgi
from antiphon.server.asgi import Scope, Send

logger = logging.getLogger("antiphon.server")

ANY_ORIGIN = "*"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@\"\\]+", re.ASCII | re.IGNORECASE)
METHODS = b"GET, POST, DELETE"
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}", re.ASCII)
EXPOSED_HEADERS = b"x-request-id, retry-after, retry-after-ms"
"""The headers of ours that scripts may read, beyond those that every script may."""

# Two hours are the most that Chrome accepts.
PREFLIGHT_SECONDS = b"7200"
MAX_LOGGED_ORIGINS = 100
"""About how many refused origins the log speaks; pages could invent any number."""

Headers = list[tuple[bytes, bytes]]


def check_origins(origins: Sequence[str], *, has_api_key: bool) -> None:
    """Raise InvalidValueError for what is no origin, and for all origins on a server without a key."""
    for index, origin in enumerate(origins):
        path = f"allowed_origins[{index}]"
        if origin == ANY_ORIGIN and not has_api_key:
            reason = "'*' would let every page that anybody visits use this server, which asks for no key"
            raise InvalidValueError(path, f"{reason}. Name the origins, or set an API key.")
        if origin != ANY_ORIGIN and not ORIGIN.fullmatch(origin):
            reason = f"'{origin[:80]}' is not an origin. Write scheme, host and port only"
            raise InvalidValueError(path, f"{reason}, such as https://app.example or http://localhost:5173.")


class CrossOriginPolicy:
    """The origins that may use the server, and the headers that tell browsers so."""

    def __init__(self, origins: Sequence[str]) -> None:
        # Browsers send origins in lower case.
        self._origins = frozenset(origin.lower() for origin in origins)
        self._refused_origins: set[str] = set()

    def allows(self, origin: str) -> bool:
        return origin in self._origins or ANY_ORIGIN in self._origins

    def headers(self, scope: Scope) -> Headers:
        """Return the headers of a response to a request; none if no origin is configured."""
        if not self._origins:
            return []
        # Also without an Origin: a cache must not answer a page with what it stored for another.
        headers = [(b"vary", b"Origin")]
        origin = asgi.header(scope, b"origin")
        if origin is not None and self.allows(origin):
            headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
            headers.append((b"access-control-expose-headers", EXPOSED_HEADERS))
        return headers

    def is_preflight(self, scope: Scope) -> bool:
        """Return whether a request asks for a page's permission, and the page has it; log what would give it."""
        if scope["type"] != "http" or scope["method"] != "OPTIONS":
            return False
        origin = asgi.header(scope, b"origin")
        if origin is None or asgi.header(scope, b"access-control-request-method") is None:
            return False
        allowed = self.allows(origin)
        if not allowed:
            self._log_refusal(origin)
        return allowed

    async def answer_preflight(self, scope: Scope, send: Send) -> None:
        """Grant what a page asks for. The key is checked with the request itself: preflights have none."""
        headers = [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-max-age", PREFLIGHT_SECONDS),
            (b"vary", b"Access-Control-Request-Headers"),
        ]
        # Repeated instead of a fixed list, because SDKs send headers of their own.
        wanted = asgi.header(scope, b"access-control-request-headers")
        if wanted and HEADER_NAMES.fullmatch(wanted):
            headers.append((b"access-control-allow-headers", wanted.encode("latin-1")))
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _log_refusal(self, origin: str) -> None:
        if not ORIGIN.fullmatch(origin) or len(origin) > 200 or origin in self._refused_origins:
            return
        if len(self._refused_origins) < MAX_LOGGED_ORIGINS:
            self._refused_origins.add(origin)
            advice = 'allowed_origins = ["%s"] below [server] in antiphon.toml, or --allow-origin %s'
            logger.warning(f"a web page of %s was refused. To allow it: {advice}", origin, origin, origin)

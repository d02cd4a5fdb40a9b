"""`GET /openapi.json`, the description of all operations, and `/docs`, a page that shows it.

Both need no key: they say what every server of this version can do, and nothing of this one.
"""

from importlib.resources import files

from starlette.routing import BaseRoute

from antiphon import __version__
from antiphon.protocol.struct import encode
from antiphon.server.asgi import AsgiApp, Receive, Scope, Send, send_json
from antiphon.server.endpoints.base import Endpoints, route
from antiphon.server.middleware import DOOR_PREFIXES
from antiphon.server.openapi.document import build_document
from antiphon.server.service import Service

PAGE_FILES = {
    "": ("docs.html", "text/html; charset=utf-8"),
    "/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
"""The files of the page, by their path below `/docs`."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class OpenApiEndpoints(Endpoints):
    """The OpenAPI document and its page."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._documents: dict[str, bytes] = {}
        """The encoded document by the prefix under which the application is mounted."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        page = [route(f"{prefix}/docs{path}", GET=serve_file(*file)) for path, file in PAGE_FILES.items()]
        return [route(f"{prefix}/openapi.json", GET=self.get_document), *page]

    async def get_document(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /openapi.json`; built at the first request, not at start-up."""
        root = str(scope.get("root_path", ""))
        if root not in self._documents:
            document = build_document(DOOR_PREFIXES, __version__)
            self._documents[root] = encode(document | {"servers": [{"url": root or "/"}]})
        await send_json(send, self._documents[root])


def serve_file(name: str, content_type: str) -> AsgiApp:
    """Return the endpoint of a file of the page."""

    async def get_file(_scope: Scope, _receive: Receive, send: Send) -> None:
        body = files("antiphon.server.openapi").joinpath(name).read_bytes()
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", PAGE_POLICY.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return get_file

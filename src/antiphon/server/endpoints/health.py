"""`GET /healthz` and `GET /readyz`: for process supervisors and load balancers."""

from starlette.routing import BaseRoute

from antiphon.protocol.struct import encode
from antiphon.server.asgi import Receive, Scope, Send, send_json
from antiphon.server.endpoints.base import Endpoints, route
from antiphon.server.service import server_stopping_error


class HealthEndpoints(Endpoints):
    """Whether the process is alive, and whether it accepts requests."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a prefix."""
        return [
            route(f"{prefix}/healthz", GET=self.healthz),
            route(f"{prefix}/readyz", GET=self.readyz),
        ]

    async def healthz(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200: the process is alive."""
        del scope, receive
        await send_json(send, encode({"status": "ok"}))

    async def readyz(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 if requests are accepted; 503 while draining or without a store."""
        del scope, receive
        # Load balancers stop sending requests before the listening socket closes.
        if self._service.draining:
            raise server_stopping_error()
        await self._service.engine()
        await send_json(send, encode({"status": "ready"}))

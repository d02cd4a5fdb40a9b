"""uvicorn's WebSocket protocol with timeouts, size limits and limits on small frames.

When the server stops, a WebSocket may finish its responses, which uvicorn would cut off.
"""

from asyncio import Protocol
from functools import partial
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode

from antiphon.protocol.errors import RequestError
from antiphon.server.asgi import BODY_BUDGET_KEY, BudgetShare
from antiphon.server.uvicorn.connection import ClientConnection, ConnectionLimits, cancel_timer

SMALL_FRAGMENT_BYTES = 64


def websocket_protocol(limits: ConnectionLimits, drain_seconds: float) -> type[Protocol]:
    """Return the protocol class for `uvicorn.Config(ws=...)`."""
    return cast("type[Protocol]", partial(HardenedWebSocketProtocol, limits=limits, drain_seconds=drain_seconds))


def is_small_frame(frame: object) -> bool:
    """Return whether a frame costs far more time than its bytes: a control frame or a tiny fragment."""
    if not isinstance(frame, Frame):
        return False
    is_control = frame.opcode in (Opcode.PING, Opcode.PONG)
    return is_control or (not frame.fin and len(frame.data) < SMALL_FRAGMENT_BYTES)


class HardenedWebSocketProtocol(ClientConnection, WebSocketsSansIOProtocol):
    """One WebSocket connection to an untrusted client."""

    piece_size = 1024

    def __init__(self, *, limits: ConnectionLimits, drain_seconds: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.limits = limits
        self.drain_seconds = drain_seconds
        self.budget_share: BudgetShare | None = None
        """The part of the application's budget that an incomplete message uses."""
        self.small_frames = 0
        self.small_frames_since = 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        self.write_timer = cancel_timer(self.write_timer)
        super().connection_lost(exc)
        # The parser is a generator that refers to its own connection and to the last frame. After
        # an unclean close only the garbage collector could free that cycle, message included.
        self.conn.parser.close()
        if self.budget_share:
            self.budget_share.resize(0)

    @property
    def is_paused(self) -> bool:
        return self.read_paused

    def parse(self, data: memoryview) -> None:
        WebSocketsSansIOProtocol.data_received(self, cast("bytes", data))
        if self.budget_share is None and (share := getattr(self, "scope", {}).get(BODY_BUDGET_KEY)):
            self.budget_share = BudgetShare(share.budget)
        if self.budget_share:
            try:
                self.budget_share.resize(len(self.conn.reader.buffer) + sum(map(len, self.frames)))
            except RequestError as error:
                self._fail(CloseCode.TRY_AGAIN_LATER, str(error))

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        if not self.read_paused:
            self.continue_parsing()
        return message

    def handle_events(self) -> None:
        frames = self.conn.events
        self.parsed_units += len(frames)
        if small := sum(map(is_small_frame, frames)):
            now = self.loop.time()
            if now - self.small_frames_since > self.limits.small_frame_seconds:
                self.small_frames, self.small_frames_since = 0, now
            self.small_frames += small
        if self.small_frames > self.limits.small_frames:
            self._fail(CloseCode.POLICY_VIOLATION, "Too many control frames or tiny fragments.")
        else:
            super().handle_events()

    def handle_cont(self, event: Frame) -> None:
        # Joined at once: a list of a million fragments would take far more memory than their bytes.
        frames = cast("list[bytearray | bytes]", self.frames)
        if not isinstance(frames[0], bytearray):
            frames[0] = bytearray(frames[0])
        frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        try:
            if self.curr_msg_data_type == "text":
                self.frames[0].decode()  # uvicorn would log an error with its traceback
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_DATA, "A text message is not valid UTF-8.")
        else:
            super().send_receive_event_to_app()

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Close the connection because of what the client sent."""
        self.conn.fail(code, reason)
        if self.handshake_complete:
            self.handle_parser_exception()
        else:
            self.transport.abort()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self.disconnected = True  # or a later `send` would be an error of the application
        self.start_write_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.start_write_timer()

    def resume_writing(self) -> None:
        self.write_timer = cancel_timer(self.write_timer)
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        if self.waits_for_client():
            # The ping is behind data that the client is still reading, perhaps slowly.
            self.pong_timer = None
            self.schedule_ping()
            if self.write_timer is None:
                self.start_write_timer()
            return
        super().keepalive_timeout()
        self.disconnected = True
        self.transport.abort()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.start_write_timer()

    def shutdown(self) -> None:
        """Give the application `drain_seconds` to finish its responses and close the connection."""
        self.loop.call_later(self.drain_seconds, self._force_shutdown)

    def _force_shutdown(self) -> None:
        # The application may have closed the connection within the drain time.
        if not self.disconnected:
            super().shutdown()

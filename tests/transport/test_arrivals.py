"""What the loop reads in one turn is heard when everything has been read."""

import asyncio

import pytest

from antiphon.transport.connection import Arrivals, Connection, Timeouts

pytestmark = pytest.mark.anyio


class Listener:
    """A connection that has been asked, the head of its answer come, and whatever it then hears."""

    def __init__(self, arrivals: Arrivals, told: list[str], name: str) -> None:
        self.connection = Connection(lambda connection: None, arrivals)
        self.connection.connection_made(Transport())
        exchange = self.connection.ask(b"GET / HTTP/1.1\r\n\r\n", Timeouts(), "p")
        exchange.listen(lambda data: told.append(f"{name} {data.decode()}"))
        self.connection.data_received(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        self.exchange = exchange


class Transport(asyncio.Transport):
    """A transport to nobody."""

    def write(self, data: object) -> None:
        del data

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def test_bodies_are_heard_when_everything_has_been_read_each_in_one_piece() -> None:
    arrivals, told = Arrivals(), list[str]()
    first, second = (Listener(arrivals, told, name) for name in ("first", "second"))
    first.connection.data_received(b"a")
    second.connection.data_received(b"x")
    first.connection.data_received(b"b")
    assert told == []
    await asyncio.sleep(0)
    assert told == ["first ab", "second x"]
    await asyncio.sleep(0)
    assert len(told) == 2


async def test_what_was_read_is_heard_before_the_connection_is_lost() -> None:
    told: list[str] = []
    listener = Listener(Arrivals(), told, "only")
    listener.connection.data_received(b"last words")
    listener.connection.connection_lost(None)
    assert told == ["only last words"]
    assert await listener.exchange.turn()
    await asyncio.sleep(0)
    assert len(told) == 1


async def test_what_was_read_for_an_answer_that_was_let_go_is_heard_by_nobody() -> None:
    told: list[str] = []
    listener = Listener(Arrivals(), told, "only")
    listener.connection.data_received(b"too late")
    listener.exchange.release()
    await asyncio.sleep(0)
    assert told == []

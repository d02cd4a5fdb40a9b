"""What all tests share: one server with the built-in models, and a model held in the hand."""

from collections.abc import Iterator

import pytest

from tests.server.gating import Gate
from tests.serving import serving


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Give the address of a running server with `demo` and `echo`."""
    with serving() as address:
        yield address


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio."""
    return "asyncio"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Give a model that answers when it is let."""
    gate = Gate()
    yield gate
    gate.open.set()

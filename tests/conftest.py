"""What all tests share: one server with the built-in models."""

from collections.abc import Iterator

import pytest

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

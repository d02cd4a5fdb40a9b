"""Fixtures for every test, and the `server` mark that `make test-fast` leaves out."""

import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from tests.run_server import run_server
from tests.server.gated_model import GatedModel

STARTERS = frozenset({"multiprocessing", "socket", "subprocess", "uvicorn"})
"""What a test module imports, itself or through its helpers, if it starts servers or processes."""


LONG_TESTS = ("tests/faults/", "tests/js/", "tests/test_readme.py", "tests/test_examples.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a server or a process, directly or through a fixture; run long ones first."""
    for item in items:
        if isinstance(item, pytest.Function) and starts_servers(item):
            item.add_marker("server")
    # The longest tests first: at the end the other workers would wait for them.
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_TESTS))


def starts_servers(test: pytest.Function) -> bool:
    """Tell whether a test, its fixtures or the helpers that they import from start servers."""
    if "server" in test.fixturenames:
        return True
    fixtures = chain.from_iterable(test._fixtureinfo.name2fixturedefs.values())
    waiting = {test.function.__module__, *(fixture.func.__module__ for fixture in fixtures)}
    # Every test may use the fixtures of this file, and only `server` starts something.
    seen = {__name__}
    while waiting := waiting - seen:
        seen |= waiting
        imported = set[str]().union(*map(modules_imported_by, waiting))
        if not STARTERS.isdisjoint(imported):
            return True
        waiting = {name for name in imported if name.startswith("tests.")}
    return False


@cache
def modules_imported_by(name: str) -> frozenset[str]:
    """Return the modules from which a module has its names."""
    values = vars(sys.modules[name]).values() if name in sys.modules else ()
    sources = (getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in values)
    return frozenset(source for source in sources if isinstance(source, str))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Give the address of a running server with `demo` and `echo`."""
    with run_server() as address:
        yield address


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio."""
    return "asyncio"


@pytest.fixture
def gate() -> Iterator[GatedModel]:
    """Give a model that answers when the test releases it."""
    gate = GatedModel()
    yield gate
    gate.release.set()

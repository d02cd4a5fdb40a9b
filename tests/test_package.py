"""The package as a whole: its public names, and what importing it costs."""

import subprocess
import sys

import pytest

import antiphon
from antiphon.agents import agent as agents
from antiphon.client.tools import signature
from antiphon.protocol import errors, parts
from antiphon.server import app

HEAVY = {"msgspec", "starlette", "uvicorn", "typer", "asyncio", "antiphon.protocol", "antiphon.server"}


@pytest.mark.parametrize("name", antiphon.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(antiphon, name) is not None
    assert name in dir(antiphon)


def test_public_names_are_the_things_themselves() -> None:
    assert antiphon.agent is agents.agent
    assert antiphon.create_app is app.create_app
    assert antiphon.Text is parts.Text
    assert antiphon.RemoteProtocolError is errors.RemoteProtocolError
    assert antiphon.ToolContext is signature.ToolContext


def test_any_other_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'antiphon' has no attribute 'nothing'"):
        antiphon.nothing  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import antiphon, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert HEAVY & set(done.stdout.split()) == set()

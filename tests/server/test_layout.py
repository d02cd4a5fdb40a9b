"""The server and the command line name no provider: each adapter describes its own."""

import re
from pathlib import Path

import antiphon
from antiphon.adapters.registry import BUILT_IN

SOURCE = Path(antiphon.__file__).parent

# OpenAI's name is that of a door and its dialect, too; the other two are common words.
NAMES = sorted(BUILT_IN.keys() - {"openai", "responses", "writer"})


def test_no_provider_is_named_in_the_server_or_the_command_line() -> None:
    pattern = re.compile("|".join(NAMES), re.IGNORECASE)
    files = [*SOURCE.joinpath("server").rglob("*.py"), *SOURCE.joinpath("cli").rglob("*.py")]
    assert len(files) > 20
    assert [path.name for path in files if pattern.search(path.read_text())] == []

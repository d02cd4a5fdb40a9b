"""Every example in docs/bridges.md, run as it is written."""

import re
from pathlib import Path

import pytest

from tests.run_server import ROOT

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bridges.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_holds_what_it_asserts(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "assert " in example
    exec(compile(example, "bridges.md", "exec"), {})

"""The guides for contributors name files that exist, and few of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/antiphon"
PACKAGES = sorted(path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py"))
TASKS = ["provider", "agent framework", "event type", "store", "request field", "endpoint", "CLI command"]


def answers() -> dict[str, list[str]]:
    """Return the files that CONTRIBUTING.md names for each task."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where do I change …?")[2]
    rows = re.findall(r"^\| add an? (.+?) \| (.+?) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {task: re.findall(r"\]\(([^)]+)\)", files) for task, files in rows}


def test_each_task_is_answered_by_one_to_three_files_that_exist() -> None:
    found = answers()
    assert list(found) == TASKS
    assert all(1 <= len(files) <= 3 for files in found.values())
    assert [f for files in found.values() for f in files if not (ROOT / f).is_file()] == []


def test_one_request_takes_at_most_12_steps_and_25_files() -> None:
    page = (ROOT / "docs/explain/one-request.md").read_text()
    assert len(re.findall(r"^\d+\. ", page, re.MULTILINE)) <= 12
    assert len(set(re.findall(r"src/antiphon/[\w/]+\.py", page))) <= 25


def test_the_glossary_is_short_and_names_files_that_exist() -> None:
    page = (ROOT / "docs/glossary.md").read_text()
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| .+ \| (.+?) \|$", page, re.MULTILINE)
    places = [place for _, where in rows for place in re.findall(r"`(.+?)`", where)]
    assert 20 <= len(rows) <= 30
    assert [place for place in places if not (ROOT / "src/antiphon" / place).exists()] == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_the_docstring_of_a_package_names_each_of_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
    children = {path.stem for path in (SOURCE / package).glob("[a-z]*.py")}
    children |= {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}
    assert sorted(children - set(re.findall(r"\w+", docstring))) == []


def test_the_page_on_tests_names_files_and_commands_that_exist() -> None:
    page = (ROOT / "docs/explain/how-it-is-tested.md").read_text()
    links = re.findall(r"\]\((\.\./[^)]+)\)", page)
    assert len(links) >= 10
    assert [link for link in links if not (ROOT / "docs/explain" / link).is_file()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page)) <= targets

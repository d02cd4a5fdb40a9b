"""A docstring, read as what it says of a function and of each of its parameters.

Three habits are known: Google's `Args:`, NumPy's underlined `Parameters`, Sphinx's `:param name:`.
What is said of results and errors is for people, so the description ends where sections begin.
"""

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple

_PARAMETER_SECTIONS = ("args", "arguments", "parameters", "params", "other parameters")
_OTHER_SECTIONS = """returns return yields yield raises receives warns warnings example examples note notes
attributes references todo""".split()
_SECTIONS = {*_PARAMETER_SECTIONS, *_OTHER_SECTIONS, "see also", "keyword args", "keyword arguments"}

_GOOGLE = re.compile(r"(?P<names>\w+)(?:\s*\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY = re.compile(r"(?P<names>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$(?P<text>)")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s(?:[^:]*\s)?(?P<names>\w+):(?P<text>.*)")
_FIELD = re.compile(r":\w[^:]*:")


class ParsedDocstring(NamedTuple):
    """What a docstring says."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Read a docstring of any of the three habits.

    >>> read("Add two numbers.\\n\\nArgs:\\n    a (int): the first\\n    b: the second")
    Docs(description='Add two numbers.', parameters={'a': 'the first', 'b': 'the second'})
    """
    (_, body), *sections = _sections(cleandoc(text or "").splitlines())
    fields = [index for index, line in enumerate(body) if _FIELD.match(line)]
    said = body[: fields[0]] if fields else body
    parameters = _entries(body[len(said) :], _SPHINX)
    for title, lines in sections:
        if title in _PARAMETER_SECTIONS:
            parameters |= _entries(lines, _GOOGLE if _first_indent(lines) else _NUMPY)
    return ParsedDocstring("\n".join(said).strip(), parameters)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Cut a docstring at its headings; what comes first has none."""
    title, body = "", list[str]()
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        underlined = len(after) > 2 and set(after) == {"-"}
        name = line.lower() if underlined else line.lower().removesuffix(":").rstrip()
        if name in _SECTIONS and (underlined or line.endswith(":")):
            yield title, body
            title, body = name, []
        elif not (title and len(line) > 2 and set(line) == {"-"}):
            body.append(line)
    yield title, body


def _entries(lines: list[str], heading: re.Pattern[str]) -> dict[str, str]:
    """Read the entries of a section; lines that stand deeper continue the one above them."""
    base = _first_indent(lines)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in filter(str.strip, lines):
        if _indent(line) < base:
            break
        if _indent(line) > base:
            current.append(line)
        elif entry := heading.match(line.strip()):
            current = [entry["text"]]
            found |= dict.fromkeys(map(str.strip, entry["names"].split(",")), current)
        else:
            current = []  # a field of another kind, or a stray line
    texts = {name: " ".join(map(str.strip, words)).strip() for name, words in found.items()}
    return {name: text for name, text in texts.items() if text}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _first_indent(lines: list[str]) -> int:
    return next((_indent(line) for line in lines if line.strip()), 0)

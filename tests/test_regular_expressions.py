"""Every regular expression of the package takes linear time on every text.

Hostile texts are derived from each expression: every repetition in it, pumped with every kind of
character that it takes, followed by something that it does not. A small backtracking matcher
counts the steps, so that the test depends on no clock.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants as op  # pyright: ignore
from re import _parser as parser  # pyright: ignore

import pytest

import antiphon
from antiphon.adapters.errors import ErrorInfo, infer_code, redact

SEARCHED = re.compile(r"(\w+)\.(?:search|sub|split|findall|finditer)\(")
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
CHARS = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
SAMPLES = {
    op.CATEGORY_DIGIT: "0",
    op.CATEGORY_WORD: "a",
    op.CATEGORY_SPACE: " ",
    op.CATEGORY_NOT_DIGIT: "a",
    op.CATEGORY_NOT_WORD: "-",
    op.CATEGORY_NOT_SPACE: "a",
}
SIZE = 8
GROWTH = 4
MARGIN = 1.75
"""Linear steps grow by GROWTH, quadratic ones by its square."""


NOT_IMPORTED = {f"antiphon.{name}" for name in ("bridges.xaibo", "bridges.xaibo_messages", "server.xaibo")}
"""Modules of a framework that has an environment of its own; they compile no expressions, which a test checks."""


class TooManySteps(Exception):
    """A text that takes more steps than a linear expression would."""


# --- the expressions ---


def expressions() -> dict[str, tuple[str, bool]]:
    """Return every expression, and whether it is searched for or only matched at one place."""
    sources = [path.read_text() for path in Path(antiphon.__file__).parent.rglob("*.py")]
    searched = {name for source in sources for name in SEARCHED.findall(source)}
    found: dict[str, tuple[str, bool]] = {}
    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if module.name.endswith("__main__") or module.name in NOT_IMPORTED:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for text in texts_of(value):
                found[text] = (text, name in searched)
    for source in sources:
        for call in ast.walk(ast.parse(source)):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[ast.Constant(value=str(text)), *_]
                ) if method != "compile":
                    found[text] = (text, method not in ("match", "fullmatch"))
                case _:
                    pass
    return found


def texts_of(value: object) -> Iterator[str]:
    """Return the expressions that a value holds."""
    match value:
        case re.Pattern(pattern=bytes(text)):
            yield text.decode("latin-1")
        case re.Pattern(pattern=text, flags=flags):
            yield f"(?x){text}" if flags & re.VERBOSE else text
        case dict():
            yield from texts_of(list(value.values()))
        case list() | tuple():
            for entry in value:
                yield from texts_of(entry)
        case _:
            pass


# --- hostile texts ---


def samples(tree) -> list[str]:
    """Return some texts that a part of an expression takes."""
    written = [""]
    for token, value in tree:
        each = token_samples(token, value)
        written = [before + after for before in written for after in each][:24]
    return written


def token_samples(token, value) -> list[str]:
    if token is op.LITERAL:
        return [chr(value)]
    if token in (op.ANY, op.NOT_LITERAL):
        return ["a", " "]
    if token is op.IN:
        return [char for char in candidates(value) if takes(value, char)]
    if token in REPEATS:
        return [text * max(1, value[0]) for text in samples(value[2])]
    inner = branches(token, value)
    return [text for branch in inner for text in samples(branch)] if inner else [""]


def branches(token, value) -> list:
    """Return the alternatives of a group."""
    groups = {op.BRANCH: 1, op.SUBPATTERN: -1}
    if token is op.ATOMIC_GROUP:
        return [value]
    if token not in groups:
        return []
    inner = value[groups[token]]
    return inner if token is op.BRANCH else [inner]


def candidates(members) -> list[str]:
    found = ["a", "'", "\u2019", "-", " ", "("] if members[0][0] is op.NEGATE else []
    for kind, value in members:
        if kind is op.LITERAL:
            found.append(chr(value))
        elif kind is op.RANGE:
            found.append(chr(value[0]))
        elif kind is op.CATEGORY:
            found.append(SAMPLES[value])
    return list(dict.fromkeys(found))


def pumps(tree, before: list[str]) -> Iterator[tuple[str, str]]:
    """Return what stands before a repetition and what is repeated, for each in an expression."""
    for token, value in tree:
        if token in REPEATS:
            yield from ((head, text) for head in before for text in samples(value[2]) if text)
            yield from pumps(value[2], before)
        for branch in branches(token, value):
            yield from pumps(branch, before)
        after = token_samples(token, value)
        before = [head + text for head in before for text in after][:4]


def hostile(tree) -> Iterator[tuple[str, str]]:
    """Return beginnings of texts, and what is to be repeated after them."""
    for head, body in dict.fromkeys(pumps(tree, [""])):
        yield head, body
        yield "", head + body


# --- a matcher that counts ---


def takes(members, char: str) -> bool:
    """Tell whether a class of characters has one."""
    negated = members[0][0] is op.NEGATE
    return negated != any(has(kind, value, char) for kind, value in members)


def has(kind, value, char: str) -> bool:
    if kind is op.LITERAL:
        return char.lower() == chr(value).lower()
    if kind is op.RANGE:
        return any(value[0] <= ord(each) <= value[1] for each in (char.lower(), char.upper()[:1]))
    if kind is op.CATEGORY:
        word = {"DIGIT": r"\d", "WORD": r"\w", "SPACE": r"\s"}[str(value).rpartition("_")[2]]
        return ("NOT" in str(value)) != bool(re.match(word, char))
    return False


class Matcher:
    """Matches an expression by backtracking, and counts the steps."""

    def __init__(self, tree, text: str, budget: float) -> None:
        self.tree = list(tree)
        self.text = text
        self.budget = budget
        self.steps = 0

    def search(self) -> None:
        """Find every match, as `sub` and `findall` do."""
        start = 0
        while start <= len(self.text):
            end = next(self.sequence(self.tree, 0, start), None)
            start = start + 1 if end is None else max(end, start + 1)

    def match(self) -> None:
        """Try to match the whole text."""
        any(end == len(self.text) for end in self.sequence(self.tree, 0, 0))

    def sequence(self, tree, index: int, at: int) -> Iterator[int]:
        if index == len(tree):
            yield at
            return
        for end in self.token(tree[index], at):
            yield from self.sequence(tree, index + 1, end)

    def token(self, node, at: int) -> Iterator[int]:
        token, value = node
        self.steps += 1
        if self.steps > self.budget:
            raise TooManySteps(self.text)
        if token is op.ATOMIC_GROUP:
            yield from first(self.sequence(list(value), 0, at))
        elif token in (op.BRANCH, op.SUBPATTERN):
            for branch in branches(token, value):
                yield from self.sequence(list(branch), 0, at)
        elif token in REPEATS:
            least, most, inner = value
            is_char = len(inner) == 1 and inner[0][0] in CHARS
            repeat = self.repeat_char if is_char else self.repeat
            ends = repeat(token, (least, most, list(inner)), at, 0)
            yield from first(ends) if token is op.POSSESSIVE_REPEAT else ends
        elif token in (op.ASSERT, op.ASSERT_NOT):
            found = next(self.sequence(list(value[1]), 0, at), None) is not None
            if found == (token is op.ASSERT):
                yield at
        elif token is op.AT:
            if self.holds(value, at):
                yield at
        elif at < len(self.text) and self.is_taken(token, value, self.text[at]):
            yield at + 1

    def repeat(self, token, value, at: int, count: int) -> Iterator[int]:
        least, most, inner = value
        lazy = token is op.MIN_REPEAT
        if lazy and count >= least:
            yield at
        if count < most:
            for end in self.sequence(inner, 0, at):
                if end > at:
                    yield from self.repeat(token, value, end, count + 1)
        if not lazy and count >= least:
            yield at

    def repeat_char(self, token, value, at: int, count: int) -> Iterator[int]:
        least, most, [char] = value
        ends = [at]
        while count < most and (end := next(self.token(char, ends[-1]), None)):
            ends.append(end)
            count += 1
        for end in ends[least:] if token is op.MIN_REPEAT else reversed(ends[least:]):
            self.steps += 1
            yield end

    def is_taken(self, token, value, char: str) -> bool:
        if token is op.IN:
            return takes(value, char)
        if token is op.ANY:
            return True
        return (char.lower() == chr(value).lower()) == (token is op.LITERAL)

    def holds(self, place, at: int) -> bool:
        if place in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return at == 0
        if place in (op.AT_END, op.AT_END_STRING):
            return at == len(self.text)
        word = [bool(re.match(r"\w", char)) for char in self.text[max(0, at - 1) : at + 1]]
        is_edge = word[0] if len(word) == 1 else len(word) == 2 and word[0] != word[1]
        return is_edge == (place is op.AT_BOUNDARY)


def first(ends: Iterator[int]) -> Iterator[int]:
    end = next(ends, None)
    return iter(()) if end is None else iter((end,))


def steps(tree, text: str, budget: float, *, searched: bool) -> int:
    matcher = Matcher(tree, text, budget)
    matcher.search() if searched else matcher.match()
    return matcher.steps


def check(expression: str, *, searched: bool) -> None:
    """Raise TooManySteps if some text of GROWTH times the length takes far more steps."""
    tree = parser.parse(expression)
    for head, body in hostile(tree):
        for end in ("\0", "{"):
            budget = MARGIN * GROWTH * steps(tree, head + body * SIZE + end, 100_000, searched=searched)
            text = head + body * SIZE * GROWTH + end
            steps(tree, text, budget, searched=searched)


# --- the tests ---


@pytest.mark.parametrize(("expression", "searched"), expressions().values())
def test_an_expression_takes_linear_time(expression: str, searched: bool):
    check(expression, searched=searched)


@pytest.mark.parametrize(
    ("expression", "searched"),
    [
        (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+", True),
        (r"context=\(([^)]*)\)", True),
        (r":\w+[^:]*:", False),
        (r"\A(?:[^'\"`{\[=]|\w['\u2019]\w|`\w+`){0,200}?credit balance", False),
        (r"(a+)+b", False),
        (r"\s+$", True),
    ],
)
def test_an_expression_that_takes_longer_is_found(expression: str, searched: bool):
    with pytest.raises(TooManySteps):
        check(expression, searched=searched)


@pytest.mark.parametrize("module", sorted(NOT_IMPORTED))
def test_a_module_that_is_not_imported_here_compiles_no_expression(module: str):
    path = Path(antiphon.__file__).parent.parent / f"{module.replace('.', '/')}.py"
    assert "re.compile" not in path.read_text()


def test_a_long_error_that_quotes_hostile_text_is_redacted():
    said = "-eyJaaaaaaaaa" * 8_000
    assert redact(f"No: {said}") == "No: -[redacted]"
    assert redact(f"sk-{'a' * 3000} what follows is not searched") == "[redacted]"
    assert redact(f"{'x' * 1990} sk-abcdefgh") == f"{'x' * 1990} [redacted"
    assert infer_code(ErrorInfo("a\u2019" * 4_000 + "{")).code is None


@pytest.mark.parametrize("key", ["sk-abcdefgh", "AKIAABCDEFGHIJKLMNOP", "bearer abcdefgh"])
@pytest.mark.parametrize("beyond", range(60, 90))
def test_no_part_of_a_truncated_key_is_shown(key: str, beyond: int):
    jwt = "eyJ" + "a" * 100
    before = f"{jwt} {'x ' * 1000}"[: 2000 + beyond - 7]
    told = redact(f"{before} {key} and more {'y' * 100}")
    assert key[:-4] not in told

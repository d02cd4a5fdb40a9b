"""Parse and validate the arguments that a model sends to a tool.

Errors are written for the model, which may try again: which argument, what was expected, what came.
"""

from collections.abc import Iterable, Mapping

from antiphon.client.tools.strict_schema import drop_optional_nulls
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.json_schema import Schema, SchemaValidator, is_object
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.wire import json

MAX_PROBLEM_LENGTH = 200
"""How many characters of a problem are sent to the model."""


class ToolError(AntiphonError):
    """A call that cannot be executed; the message is sent to the model."""


class ArgumentReader:
    """Reads the arguments of one tool."""

    def __init__(self, name: str, schema: Mapping[str, object]) -> None:
        self.name = name
        self.schema = dict(schema)
        self._validator = SchemaValidator(schema)

    def read(self, text: str) -> Schema:
        """Return the arguments as JSON, or raise ToolError."""
        arguments = drop_optional_nulls(self._parse(repair_surrogates(text)), self.schema)
        if not is_object(arguments):
            raise self.invalid_arguments_error(["the arguments must be a JSON object"])
        if problems := self._validator.problems(arguments):
            raise self.invalid_arguments_error(problems)
        return arguments

    def invalid_arguments_error(self, problems: Iterable[str]) -> ToolError:
        """Build the error that lists the problems."""
        text = "; ".join(problem[:MAX_PROBLEM_LENGTH] for problem in problems)
        return ToolError(f"Tool {self.name} failed: Invalid arguments: {text}")

    def _parse(self, text: str) -> object:
        # Some models send these to a tool without parameters.
        if text.strip() in ("", "null"):
            return {}
        try:
            return json.decode(text.encode())
        except json.JSONError as error:
            try:
                return json.decode(repair_json(text).encode())
            # The error of the original text: that of the repaired one would confuse the model.
            except json.JSONError:
                reason = str(error).removeprefix("Invalid JSON: ")
                message = f"Tool {self.name} failed: Invalid JSON arguments: {reason}"
                raise ToolError(f"{message} You sent: {text[:MAX_PROBLEM_LENGTH]}") from None


_CLOSING_BRACKETS = {"{": "}", "[": "]"}


def repair_json(text: str) -> str:
    """Add missing closing brackets and remove trailing commas; the result may still be invalid.

    >>> repair_json('{"city": "Oslo", "days": [1, 2,')
    '{"city": "Oslo", "days": [1, 2]}'
    """
    # Small models forget these. Nothing else is guessed: half a string may be half a path.
    repaired: list[str] = []
    open_brackets: list[str] = []
    in_string = escaped = False
    for character in text.rstrip():
        if escaped:
            escaped = False
        elif in_string and character == "\\":
            escaped = True
        elif character == '"':
            in_string = not in_string
        elif not in_string and character in _CLOSING_BRACKETS:
            open_brackets.append(_CLOSING_BRACKETS[character])
        elif not in_string and open_brackets and character == open_brackets[-1]:
            _drop_trailing_comma(repaired)
            open_brackets.pop()
        repaired.append(character)
    if in_string:
        return text
    _drop_trailing_comma(repaired)
    return "".join([*repaired, *reversed(open_brackets)])


def _drop_trailing_comma(characters: list[str]) -> None:
    while characters and characters[-1].isspace():
        characters.pop()
    if characters and characters[-1] == ",":
        characters.pop()

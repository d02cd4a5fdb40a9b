"""What a model sent for a tool's arguments, held against the schema it was shown.

Whatever is wrong is told in words for the model, which may then try again: which argument, what
was expected, what came.
"""

from collections.abc import Iterable, Mapping

from antiphon.client.tools.json_repair import repair_json
from antiphon.client.tools.strict_schema import drop_optional_nulls
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.json_schema import Schema, SchemaValidator, is_object
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.wire import json

MAX_PROBLEM_LENGTH = 200
"""How much is told of one problem."""


class ToolError(AntiphonError):
    """A call that cannot be answered; the message is made for the model."""


class ArgumentReader:
    """Reads what a model sends to one tool."""

    def __init__(self, name: str, schema: Mapping[str, object]) -> None:
        self.name = name
        self.schema = dict(schema)
        self._validator = SchemaValidator(schema)

    def read(self, text: str) -> Schema:
        """Return the arguments as JSON, or raise ToolError."""
        given = drop_optional_nulls(self._parse(repair_surrogates(text)), self.schema)
        if not is_object(given):
            raise self.invalid_arguments_error(["the arguments must be a JSON object"])
        if problems := self._validator.problems(given):
            raise self.invalid_arguments_error(problems)
        return given

    def invalid_arguments_error(self, problems: Iterable[str]) -> ToolError:
        """Make the error that tells the model what is wrong."""
        told = "; ".join(problem[:MAX_PROBLEM_LENGTH] for problem in problems)
        return ToolError(f"Tool {self.name} failed: Invalid arguments: {told}")

    def _parse(self, text: str) -> object:
        if text.strip() in ("", "null"):
            return {}  # what some models send to a tool that takes nothing
        try:
            return json.decode(text.encode())
        except json.JSONError as error:
            try:
                return json.decode(repair_json(text).encode())
            except json.JSONError:
                reason = str(error).removeprefix("Invalid JSON: ")
                message = f"Tool {self.name} failed: Invalid JSON arguments: {reason}"
                raise ToolError(f"{message} You sent: {text[:MAX_PROBLEM_LENGTH]}") from None

"""What a model sent for a tool's arguments, held against the schema it was shown.

Whatever is wrong is told in words for the model, which may then try again: which argument, what
was expected, what came.
"""

from collections.abc import Iterable, Mapping

from antiphon.adapters.validity import Validity
from antiphon.client.tools.mending import closed
from antiphon.client.tools.nulls import without_nulls
from antiphon.core.errors import AntiphonError
from antiphon.core.schema import Schema, is_object
from antiphon.core.surrogates import mend
from antiphon.wire import json

MAX_WORDS = 200
"""How much is told of one problem."""


class ToolError(AntiphonError):
    """A call that cannot be answered; the message is made for the model."""


class Arguments:
    """Reads what a model sends to one tool."""

    def __init__(self, name: str, schema: Mapping[str, object]) -> None:
        self.name = name
        self.schema = dict(schema)
        self._validity = Validity(schema)

    def read(self, text: str) -> Schema:
        """Return the arguments as JSON, or raise ToolError."""
        given = without_nulls(self._parsed(mend(text)), self.schema)
        if not is_object(given):
            raise self.refused(["the arguments must be a JSON object"])
        if problems := self._validity.problems(given):
            raise self.refused(problems)
        return given

    def refused(self, problems: Iterable[str]) -> ToolError:
        """Make the error that tells the model what is wrong."""
        told = "; ".join(problem[:MAX_WORDS] for problem in problems)
        return ToolError(f"Tool {self.name} failed: Invalid arguments: {told}")

    def _parsed(self, text: str) -> object:
        if text.strip() in ("", "null"):
            return {}  # what some models send to a tool that takes nothing
        try:
            return json.decode(text.encode())
        except json.JSONError as error:
            try:
                return json.decode(closed(text).encode())
            except json.JSONError:
                reason = str(error).removeprefix("Invalid JSON: ")
                message = f"Tool {self.name} failed: Invalid JSON arguments: {reason}"
                raise ToolError(f"{message} You sent: {text[:MAX_WORDS]}") from None

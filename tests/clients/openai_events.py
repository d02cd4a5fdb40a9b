"""Expected events and helpers of the openai-python tests."""

from openai.types.responses import Response, ResponseInputParam

HELLO = "Hello from Antiphon's demo model. You said: Hello!"
WORDS = ["Hello", " from", " Antiphon's", " demo", " model.", " You", " said:", " Hello!"]

BEGIN_EVENTS = ["response.created", "response.in_progress"]
OPEN_EVENTS = ["response.output_item.added", "response.content_part.added"]
CLOSE_EVENTS = ["response.content_part.done", "response.output_item.done"]


def text_events(words: int) -> list[str]:
    """Return the event types of a message."""
    deltas = ["response.output_text.delta"] * words
    return [*OPEN_EVENTS, *deltas, "response.output_text.done", *CLOSE_EVENTS]


def output_as_input(response: Response) -> ResponseInputParam:
    """Return a response's output as input, as OpenAI's guide does."""
    return response.output  # pyright: ignore[reportReturnType] - models are dumped by the client

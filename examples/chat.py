"""A chat in the terminal: the server keeps the history, so only new input is sent.

With a server running, `python chat.py`, or `python chat.py MODEL URL`. An empty line ends it.
"""

import sys
from contextlib import suppress

from openai import OpenAI

model = sys.argv[1] if len(sys.argv) > 1 else "demo"
url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000/openai/v1"
client = OpenAI(base_url=url, api_key="none")
previous: str | None = None

with suppress(EOFError, KeyboardInterrupt):
    while said := input("> "):
        stream = client.responses.create(model=model, input=said, previous_response_id=previous, stream=True)
        for event in stream:
            match event.type:
                case "response.output_text.delta":
                    print(event.delta, end="", flush=True)
                case "response.completed" | "response.incomplete":
                    previous = event.response.id
                case "response.failed":
                    print(event.response.error and event.response.error.message, end="")
                case _:
                    pass
        print()

"""A conversation with an agent in the terminal: its text, its tool calls and its token usage.

Start a server (`make serve`), then `python agent.py`; an empty line ends it. Other models and other
servers: `ANTIPHON_BASE_URL=… ANTIPHON_API_KEY=… python agent.py anthropic/claude-sonnet-4-5`.
"""

import sys
from datetime import UTC, datetime

from antiphon import Client, Conversation, tool


@tool
def clock() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).strftime("%H:%M")


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: the first
        b: the second
    """
    return a * b


def answer(client: Client, prompt: str, model: str, conversation: Conversation) -> None:
    """Run one prompt and print the events."""
    run = client.stream_agent(prompt, model=model, tools=[clock, multiply], conversation=conversation)
    for event in run:
        if event.type == "token":
            print(event.token, end="", flush=True)
        elif event.type == "tool_update" and event.status in ("completed", "failed"):
            call = event.tool_call
            print(f"[{call.name}({call.arguments}) = {event.result or event.error}]")
    tokens = run.result.usage.total_tokens if run.result else 0
    print(f"\n({tokens} tokens)")


def main() -> None:
    """Read prompts until an empty line."""
    model = sys.argv[1] if len(sys.argv) > 1 else "demo"
    conversation = Conversation(instructions="Be brief. Use the tools.")
    with Client() as client:
        while prompt := input("> "):
            answer(client, prompt, model, conversation)


if __name__ == "__main__":
    main()

"""Writer's answers. The dialect has no reasoning, so that scene is missing."""

import json

from antiphon.adapters.writer import Writer
from tests.adapters.scenes import openai as plain

ADAPTER = Writer


def rename_usage(usage: dict) -> dict:
    """Spell the details of the tokens read as Writer does."""
    return {name.replace("prompt_tokens_d", "prompt_token_d"): n for name, n in usage.items()}


def stream(*deltas: dict, finish: str = "stop", usage: dict = plain.USAGE) -> bytes:
    """Write a stream."""
    return plain.stream(*deltas, finish=finish, usage=rename_usage(usage))


def whole(message: dict, finish: str = "stop", usage: dict = plain.USAGE) -> bytes:
    """Write a whole answer, whose message always has the data of Writer's own tools."""
    answer = json.loads(plain.whole({"content": ""} | message, finish, rename_usage(usage)))
    answer["choices"][0]["message"] |= {"graph_data": None, "llm_data": None}
    return json.dumps(answer).encode()


SCENES = plain.scenes(stream, whole)

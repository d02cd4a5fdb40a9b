"""Antiphon inside another application, at `/ai/v1` and `/ai/openai/v1`.

Serve it, from this folder, with `uvicorn mounted:app`.
"""

from fastapi import FastAPI

from antiphon import Antiphon, Turn, agent


@agent("parrot")
def parrot(turn: Turn) -> str:
    """Return the input twice."""
    return f"{turn.text} {turn.text}"


app = FastAPI()
Antiphon(agents=[parrot]).adapt(app, prefix="/ai")

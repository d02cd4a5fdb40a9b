"""Antiphon inside another application, at `/ai/v1` and `/ai/openai/v1`.

Serve it, from this folder, with `uvicorn mounted:app`.
"""

from fastapi import FastAPI

from antiphon import Settings, Turn, agent, create_app


@agent("parrot")
def parrot(turn: Turn) -> str:
    """Return the input twice."""
    return f"{turn.text} {turn.text}"


gateway = create_app(Settings(agents=[parrot]))
# With its lifespan, running responses finish before the server stops.
app = FastAPI(lifespan=gateway.router.lifespan_context)
app.mount("/ai", gateway)

"""Serves the page and, for its chats, every model: the agent below, and those of the providers whose keys are set.

Serve it, after `npm run build`, with `antiphon serve --app server:app`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette
from starlette.staticfiles import StaticFiles

from antiphon import Antiphon, Call, Turn, agent

PLACES = {
    "Lisbon": [
        ("Alfama", "quarter", "Narrow lanes below the castle, laundry in the wind, and music at night."),
        ("Mercado da Ribeira", "food", "A market hall where half the city eats at long tables."),
    ],
    "Oslo": [
        ("Opera House", "building", "Walk up its marble roof for a view over the fjord."),
        ("Vigeland Park", "park", "More than two hundred sculptures under old trees, open day and night."),
        ("Munch Museum", "museum", "Thirteen floors of Edvard Munch, and a bar on top."),
    ],
}
COLORS = "red, green, blue, purple, teal, brown"


@agent("guide")
async def guide(turn: Turn) -> AsyncIterator[str | Call]:
    """Play a city guide by a script, so that the page can be tried without a key."""
    color = next((name for name in COLORS.split(", ") if name in turn.text.lower()), None)
    cities = [city for city in PLACES if city in turn.text]
    if turn.tool_outputs:
        answer = [markdown("Done. Do you like it?")]
    elif color and turn.functions:
        yield Call(name="paintPage", arguments=json.dumps({"color": color}))
        return
    elif cities:
        intro = f"**{' and '.join(cities)}:** here is what I would not miss."
        answer = [markdown(intro), *(place(*facts) for city in cities for facts in PLACES[city])]
    else:
        answer = [markdown(f"I know {' and '.join(PLACES)}, and I can paint this page in {COLORS}.")]
    for piece in re.findall(r".{1,12}", json.dumps({"ui": answer})):
        await asyncio.sleep(0.03)
        yield piece


def markdown(text: str) -> dict[str, object]:
    """Return a text, as the page's components want it."""
    return {"Markdown": {"props": {"children": text}}}


def place(name: str, kind: str, description: str) -> dict[str, object]:
    """Return a card of the page."""
    return {"Place": {"props": {"name": name, "kind": kind, "description": description}}}


antiphon = replace(Antiphon.from_config(agents=[guide]), demo=False, list_threads=True)
app = Starlette()
antiphon.adapt(app)
app.mount("/", StaticFiles(directory=Path(__file__).parent / "dist", html=True))

"""Serve the test agents with an adapter, in Xaibo's environment.

python -m tests.bridges.xaibo.serve CLASS PORT FOLDER
"""

import sys

import uvicorn
from fastapi import FastAPI
from xaibo.server.web import get_class_by_path

from tests.bridges.xaibo.agents import STARTED, STOPPED, make_xaibo


def main(adapter: str, port: int, folder: str) -> None:
    """Serve."""
    app = FastAPI()
    get_class_by_path(adapter)(make_xaibo(), streaming_timeout=1, responses_dir=folder).adapt(app)

    @app.get("/endless")
    async def endless() -> dict[str, list[str]]:
        return {"started": STARTED, "stopped": STOPPED}

    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

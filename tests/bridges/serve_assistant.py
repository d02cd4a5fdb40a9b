"""Serve one framework's `assistant` in a process of its own, and its model in this one."""

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from antiphon.server.settings import Settings
from tests.bridges.scripted_model import ScriptedModel
from tests.run_server import ROOT, run_command, run_server


class Assistant(Struct):
    """A served agent: its address, its model, and the file that its tool `work` writes."""

    url: str
    model: ScriptedModel
    work_log: Path

    @property
    def work_lines(self) -> list[str]:
        """What the tool has written so far."""
        return self.work_log.read_text().splitlines() if self.work_log.exists() else []


@contextmanager
def serve_assistant(*targets: str, python: str = sys.executable) -> Iterator[Assistant]:
    """Run `antiphon serve --app TARGET`, with the scripted model as the only OpenAI that the process knows."""
    model = ScriptedModel()
    served = Settings(agents=[model.agent])
    with run_server(served) as model_url, tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "work.log")
        options = [option for target in targets for option in ("--app", target)]
        env = {"OPENAI_BASE_URL": f"{model_url}/openai/v1", "OPENAI_API_KEY": "none", "WORK_LOG": str(log)}
        with run_command(*options, "--data", ":memory:", cwd=ROOT, env=env, python=python) as (url, process):
            assert process.stdout is not None
            # Nobody else reads the log; a full pipe would block the server.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield Assistant(url, model, log)

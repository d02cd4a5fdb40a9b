"""Fail if a Python file is longer than the limit."""

import sys
from pathlib import Path

LIMIT = 600
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Report every Python file over the limit."""
    files = [path for top in ("src", "tests", "bench", "scripts") for path in (ROOT / top).rglob("*.py")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    for path, length in sorted(lengths.items()):
        if length > LIMIT:
            name = path.relative_to(ROOT)
            print(f"{name}: {length} lines, over {LIMIT}: split it")
    longest = max(lengths.values(), default=0)
    source = sum(length for path, length in lengths.items() if ROOT / "src" in path.parents)
    print(f"{len(files)} files, the longest {longest} lines; {source} lines of source")
    return int(longest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())

"""How long `import antiphon` takes, beside `import openai`."""

import subprocess
import sys
import time

from bench.table import show

ROUNDS = 7


def start(code: str, rounds: int = ROUNDS) -> float:
    """Return the minimum of the milliseconds that Python takes to run some code."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def main() -> None:
    """Measure."""
    nothing = start("pass")
    figures = {
        "python_ms": nothing,
        "antiphon_ms": start("import antiphon") - nothing,
        "antiphon_server_ms": start("from antiphon import create_app") - nothing,
        "openai_ms": start("import openai", 3) - nothing,
    }
    rows = [(name.removesuffix("_ms"), value, "ms") for name, value in figures.items()]
    show("imports: start-up time over Python's own (aim: antiphon < 100 ms)", rows, figures)


if __name__ == "__main__":
    main()

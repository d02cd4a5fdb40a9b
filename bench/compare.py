"""Compare this checkout with an older commit: `make bench WHAT=gateway OLD=<commit>`.

The old source is extracted into a temporary folder and started through the public command line or
imported through the public client, so that any commit with the same interface can be compared. Each
round measures old, new and old again, in rotating order. The second run of the old code shows how
much two measurements of the same code differ: a figure is worse only if it exceeds that spread by
more than five per cent.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench.table import show, unit

ROUNDS = 9
TOLERANCE = 0.05
ROOT = Path(__file__).resolve().parent.parent

Figures = Mapping[str, float]
Measure = Callable[[], Figures]


@contextmanager
def extract(commit: str) -> Iterator[Path]:
    """Extract the source of a commit; give the folder that holds `antiphon`."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True)
        if archive.returncode:
            raise SystemExit(f"bench: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder) / "src"


def import_path(source: Path) -> dict[str, str]:
    """Return the environment in which Python imports `antiphon` from a folder."""
    return {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}


def compare(title: str, old: Measure, new: Measure, again: Measure) -> bool:
    """Measure in rounds and print the ratios; return whether no figure of the new code is worse."""
    taken: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    sides = [("old", old), ("new", new), ("again", again)]
    for number in range(ROUNDS):
        # The order rotates, so that no side always follows the same one.
        for side, measure in sides[number % 3 :] + sides[: number % 3]:
            for name, value in measure().items():
                taken[name][side].append(value)
        print(f"bench: round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
    rows: list[tuple[str, float, str]] = []
    figures: dict[str, float] = {}
    worse: list[str] = []
    for name, by_side in taken.items():
        ratio = median_ratio(by_side["new"], by_side["old"])
        spread = interquartile_range(by_side["again"], by_side["old"])
        rows += [
            (f"{name}, old", median(by_side["old"]), unit(name)),
            (f"{name}, new", median(by_side["new"]), unit(name)),
            (f"{name}, new over old", ratio, "×"),
            (f"{name}, spread of old over old", spread, "×"),
        ]
        figures |= {f"{name}_ratio": ratio, f"{name}_spread": spread}
        if ratio > 1 + TOLERANCE + spread:
            worse.append(name)
    show(title, rows, figures)
    for name in worse:
        print(f"bench: {name} is worse by more than {TOLERANCE:.0%} plus the spread")
    return not worse


def median_ratio(over: list[float], under: list[float]) -> float:
    """Return the median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def interquartile_range(over: list[float], under: list[float]) -> float:
    """Return how far apart the middle half of the rounds' ratios is."""
    low, _, high = quantiles([a / b for a, b in zip(over, under, strict=True)], n=4)
    return high - low

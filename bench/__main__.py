"""`make bench`: run all benchmarks, or the ones that are named.

Each prints a table and, as its last line, one line of JSON with its figures and their baselines,
measured in the same run. Figures are for comparing within a run: machines are noisy.
"""

import argparse
import importlib
import sys

ALL = ["micro", "imports", "serve", "store", "state", "gateway", "client", "loop", "agents", "scale"]
COMPARABLE = ["gateway", "client"]


def main() -> int:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure; figures are ratios.")
    parser.add_argument("names", nargs="*", help=f"one or more of: {', '.join(ALL)}")
    parser.add_argument("--old", help="a commit to compare with (gateway and client only)")
    chosen = parser.parse_args()
    wanted: list[str] = chosen.names or (COMPARABLE if chosen.old else ALL)
    if unknown := [name for name in wanted if name not in ALL]:
        print(f"bench: no '{unknown[0]}'. There are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    if chosen.old and (others := [name for name in wanted if name not in COMPARABLE]):
        print(f"bench: '{others[0]}' cannot be compared with a commit", file=sys.stderr)
        return 2
    if chosen.old:
        results = [importlib.import_module(f"bench.{name}").main(chosen.old) for name in wanted]
        return 0 if all(results) else 1
    for name in wanted:
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())

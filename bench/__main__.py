"""`make bench`: run every measurement, or the one that is named.

Each prints a table and, as its last line, one line of JSON with its figures and their baselines,
measured in the same run. Figures are for comparing within a run: machines are noisy.
"""

import importlib
import sys

ALL = ["micro", "imports", "serve", "store", "state", "gateway", "client", "loop"]


def main() -> int:
    """Run what is asked for."""
    wanted = sys.argv[1:] or ALL
    if unknown := [name for name in wanted if name not in ALL]:
        print(f"bench: no '{unknown[0]}'. There are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    for name in wanted:
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())

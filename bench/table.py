"""Print figures as a table for people and one line of JSON for programs."""

import json


def show(title: str, rows: list[tuple[str, float, str]], figures: dict[str, float]) -> None:
    """Print a titled table, then the figures as the last line."""
    print(f"\n{title}")
    width = max(len(name) for name, *_ in rows)
    for name, value, unit in rows:
        print(f"  {name:<{width}}  {value:>10.2f} {unit}")
    rounded = {name: round(value, 3) for name, value in figures.items()}
    print(json.dumps(rounded), flush=True)


def unit(name: str) -> str:
    """Return the unit of a figure, which its name tells."""
    return "ms" if "ms_per" in name else "µs" if "us_per" in name else ""

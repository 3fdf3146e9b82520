"""Columns that are measured in turn, and the table and CSV that come of it."""

from __future__ import annotations

import csv
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    less_is_better: bool


LATENCY = Figure("latency", "us", True)
RATE = Figure("message rate", "messages/s", False)
BANDWIDTH = Figure("bandwidth", "MB/s", False)
CPU = Figure("CPU of both sides", "s/GB", True)

# What one run of a column gives: a value for each figure and message size (None where size means nothing).
Sample = dict[tuple[Figure, int | None], float]


class Failed(Exception):
    """A run gave nothing; the text says why."""


# The parts of a measurement: what a part gives is kept, whatever becomes of the others.
Parts = dict[str, Callable[[], Sample]]


@dataclass
class Column:
    """One thing that is measured beside others."""

    name: str
    parts: Parts
    # Why it cannot be measured here, and how to change that.
    missing: str = ""
    ours: bool = False
    # What the wires carry: no peer, but what every column is a share of.
    limit: bool = False
    values: dict[tuple[Figure, int | None], list[float]] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def run(self, part: str) -> None:
        # twice without a success: it does not work here, and each try may take its whole time limit
        hopeless = part not in self.succeeded and len(self.failures.get(part, [])) >= 2
        if self.missing or hopeless or part not in self.parts:
            return
        try:
            for key, value in self.parts[part]().items():
                self.values.setdefault(key, []).append(value)
            self.succeeded.add(part)
        except Failed as why:
            self.failures.setdefault(part, []).append(str(why))


def alternate(columns: list[Column], rounds: int, seconds: float = float("inf")) -> None:
    """Measures all columns in turn, part by part, so many rounds or as many as begin in the time: what disturbs one disturbs
    the others as well. Each round has an order of its own, by chance: what a column leaves behind (a processor that has rested) meets no
    other one more often than the rest."""
    chance = random.Random(1)
    begun = time.monotonic()
    parts = list(dict.fromkeys(part for column in columns for part in column.parts))
    for n in range(rounds):
        if n > 0 and time.monotonic() - begun > seconds:
            break
        order = chance.sample(columns, len(columns))
        for part in parts:
            for column in order:
                tell(f"round {n + 1} of {rounds}: {column.name}, {part}")
                column.run(part)
    tell("")


def tell(text: str) -> None:
    """Says on the terminal, if there is one, what is going on."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def written(value: float) -> str:
    """Four digits that count."""
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if value >= 0.01 or value == 0 else f"{value:.2e}"


# Student's t, of which 5 % lie above, by degrees of freedom.
T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729)


def interval(values: list[float]) -> float:
    """Half the width of the mean's 90 % confidence interval; infinite for one value."""
    if len(values) < 2:
        return float("inf")
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.645
    return t * statistics.stdev(values) / len(values) ** 0.5


def interval_text(mean: float, half: float) -> str:
    return f"{mean:.3f} ±{half:.3f}"


def size_name(size: int | None) -> str:
    if size is None:
        return ""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


@dataclass
class Table:
    """The medians of columns side by side. The first column of ours is compared with the best of the others."""

    title: str
    columns: list[Column]
    # Means with their 90 % confidence intervals instead of medians.
    means: bool = False
    # What the sizes are of.
    sizes: str = "bytes"

    def cell(self, values: list[float] | None) -> str:
        if not values:
            return "-"
        return interval_text(statistics.mean(values), interval(values)) if self.means else written(statistics.median(values))

    def rows(self) -> list[tuple[Figure, int | None]]:
        keys = dict.fromkeys(key for column in self.columns for key in column.values)
        order = list(dict.fromkeys(figure for figure, _ in keys))
        return sorted(keys, key=lambda key: (order.index(key[0]), key[1] or 0))

    def ratio(self, key: tuple[Figure, int | None]) -> float | None:
        """How many times as good as the best peer ours is."""
        ours = next((c.values[key] for c in self.columns if c.ours and key in c.values), None)
        theirs = [statistics.median(c.values[key]) for c in self.columns if not (c.ours or c.limit) and key in c.values]
        if ours is None or not theirs:
            return None
        value = statistics.median(ours)
        if key[0].less_is_better:
            return min(theirs) / value if value else None
        return value / max(theirs) if max(theirs) else None

    def share(self, column: Column, key: tuple[Figure, int | None]) -> float | None:
        """How much of what the wires carry a column gets."""
        limit = next((c.values[key] for c in self.columns if c.limit and key in c.values), None)
        if limit is None or key not in column.values or column.limit:
            return None
        return statistics.median(column.values[key]) / statistics.median(limit)

    def show(self) -> None:
        shown = [column for column in self.columns if column.values]
        counts = [len(values) for column in shown for values in column.values.values()]
        if shown:
            print(f"\n{self.title}, {'means and 90 % intervals' if self.means else 'medians'} of {min(counts)}" + ("" if min(counts) == max(counts) else f" to {max(counts)}"))
            width = max([18 if self.means else 14] + [len(column.name) + 2 for column in shown])
            compared = any(self.ratio(key) is not None for key in self.rows())
            ours = next((column for column in shown if column.ours), None)
            limited = ours is not None and any(self.share(ours, key) is not None for key in self.rows())
            head = "".join(f"{column.name:>{width}}" for column in shown)
            sizes = self.sizes if any(size is not None for _, size in self.rows()) else ""
            head += f"{'vs. best other':>15}" if compared else ""
            print(f"  {'':<32}{sizes:>6}{head}" + (f"{'of line rate':>14}" if limited else ""))
            before = None
            for key in self.rows():
                figure, size = key
                label = (f"{figure.name} ({figure.unit})" if figure.unit else figure.name) if figure != before else ""
                before = figure
                cells = ""
                for column in shown:
                    cells += f"{self.cell(column.values.get(key)):>{width}}"
                ratio = self.ratio(key)
                share = self.share(ours, key) if ours else None
                cells += f"{ratio:>14.2f}x" if ratio is not None else " " * 15 if share is not None else ""
                cells += f"{share:>14.0%}" if share is not None else ""
                print(f"  {label:<32}{size_name(size):>6}{cells}")
        else:
            print(f"\n{self.title}: nothing could be measured")
        for column in self.columns:
            if column.missing:
                print(f"  missing: {column.name}: {column.missing}")
            for part, reasons in column.failures.items():
                for why in dict.fromkeys(reasons):
                    print(f"  failed: {column.name}, {part}: {why}")


COLUMNS = ["table", "figure", "unit", "size_bytes", "series", "median", "min", "max", "mean", "half_of_90_percent_interval", "rounds"]
COLUMNS += ["times_as_good_as_best_peer", "of_line_rate", "shown"]


def save(name: str, tables: list[Table]) -> Path:
    """Writes tables to a file of bench/results."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}.csv"
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for table in tables:
            for key in table.rows():
                figure, size = key
                for column in table.columns:
                    if values := column.values.get(key):
                        ratio = table.ratio(key) if column.ours else None
                        share = table.share(column, key)
                        writer.writerow(
                            [table.title, figure.name, figure.unit, size if size is not None else "", column.name]
                            + [f"{value:.6g}" for value in (statistics.median(values), min(values), max(values), statistics.mean(values), interval(values))]
                            + [len(values), *(f"{part:.4f}" if part is not None else "" for part in (ratio, share)), "mean" if table.means else "median"]
                        )
    return file

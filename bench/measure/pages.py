"""Pages of docs/performance, out of what was measured: each says when, of which commit, on which machine, and by which command."""

from __future__ import annotations

import csv
import os
import platform
import shlex
import subprocess
import time
from pathlib import Path

from .figures import RESULTS, interval_text, size_name, written

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs/performance"


def results(name: str, since: float) -> list[Path]:
    """Files of this measurement that were written since then, the oldest first."""
    files = [file for file in RESULTS.glob(f"*-{name}*.csv") if file.stat().st_mtime >= since]
    # a name may begin another one's
    return sorted(file for file in files if file.stem.split("-", 2)[2] in (name, *PARTS.get(name, ())))


# Measurements of which parts are saved under names of their own.
PARTS = {"mpi": ("mpi-two",), "trace": ("trace-osu", "trace-loss", "trace-idle")}


def write(name: str, what: str, words: list[str], since: float) -> Path | None:
    """The page of one measurement; none: it gave nothing."""
    rows: list[dict[str, str]] = []
    for file in results(name, since):
        with file.open(newline="") as lines:
            rows += csv.DictReader(lines)
    if not rows:
        return None
    PAGES.mkdir(exist_ok=True)
    page = PAGES / f"{name}.md"
    by_table: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_table.setdefault(row["table"], []).append(row)
    text = f"# {what[0].upper()}{what[1:]}\n\n"
    text += f"<!-- written by bench/run --markdown: changes to this file are lost -->\n\n{circumstances(name, words)}\n"
    text += "".join(f"\n## {title}\n\n{table(its)}" for title, its in by_table.items())
    page.write_text(text)
    return page


def circumstances(name: str, words: list[str]) -> str:
    command = shlex.join(["bench/run", name, *(word for word in words if word != "--markdown")])
    lines = [
        ("measured", time.strftime("%Y-%m-%d")),
        ("commit", commit()),
        ("machine", machine()),
        ("again", f"`{command}`"),
    ]
    return "| | |\n|---|---|\n" + "".join(f"| {label} | {text} |\n" for label, text in lines)


def commit() -> str:
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()  # noqa: E731
    changed = [line for line in git("status", "--porcelain", "--untracked-files=no").splitlines() if "docs/" not in line]
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (", changed" if changed else "")


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), platform.machine())
    virtual = ", virtual" if " hypervisor" in info else ""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} processors ({model}{virtual}), Linux {platform.release()}; load {load:.1f} at the end"


def table(rows: list[dict[str, str]]) -> str:
    """One line for each figure and size, a column for each contender."""
    series = list(dict.fromkeys(row["series"] for row in rows))
    lines: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        lines.setdefault((row["figure"], row["unit"], row["size_bytes"]), {})[row["series"]] = row
    one = lambda name: any(row[name] for row in rows)  # noqa: E731
    sized, compared, limited = one("size_bytes"), one("times_as_good_as_best_peer"), one("of_line_rate")
    head = ["", *(["size"] if sized else []), *series]
    head += [*(["vs. best other"] if compared else []), *(["of line rate"] if limited else [])]
    text = f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    before = None
    for (figure, unit, size), cells in lines.items():
        words = ["" if (figure, unit) == before else f"{figure}, {unit}" if unit else figure]
        before = (figure, unit)
        words += [size_name(int(size)) if size else ""] if sized else []
        words += [cell(cells.get(name)) for name in series]
        ours = [row for row in cells.values() if row["times_as_good_as_best_peer"]]
        words += [f"{float(ours[0]['times_as_good_as_best_peer']):.2f}" if ours else ""] if compared else []
        share = next((row["of_line_rate"] for row in (ours or cells.values()) if row["of_line_rate"]), "")
        words += [f"{float(share):.0%}" if share else ""] if limited else []
        text += f"| {' | '.join(words)} |\n"
    counts = sorted({int(row["rounds"]) for row in rows})
    of = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kind = "Means with 90 % confidence intervals" if rows[0]["shown"] == "mean" else "Medians"
    return f"{text}\n{kind} of {of}.\n"


def cell(row: dict[str, str] | None) -> str:
    if row is None:
        return ""
    if row["shown"] == "mean":
        return interval_text(float(row["mean"]), float(row["half_of_90_percent_interval"]))
    return written(float(row["median"]))

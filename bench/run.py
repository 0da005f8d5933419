"""Every benchmark, one after the other: `make bench`. Figures are ratios and CPU seconds within this one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    failed = 0
    for title, script in (
        ("Planning: cost and packing", "planning.py"),
        ("A starting controller: processor time and memory", "start.py"),
        ("A running controller: its share of a core", "running.py"),
        ("First sync through a real API server, against the official client", "sync.py"),
        ("Controllers on virtual time: what a core gets through", "virtual.py"),
        ("A load that rises and falls: nodes added, and CPUs kept", "regret.py"),
        ("Floors held falsely in a week, and lowered falsely when series are lost", "holds.py"),
        ("Floors of 10,000 HPAs by one Prometheus", "floors.py"),
    ):
        print(f"\n{title}\n{'-' * len(title)}", flush=True)
        failed |= subprocess.run([sys.executable, HERE / script, *sys.argv[1:]], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())

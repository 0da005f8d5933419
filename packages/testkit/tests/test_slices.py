"""The time slices of tests and of what they start."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

RUN = """
import os, subprocess
from tightship_testkit import slices
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
nice = os.nice(3)
slices.lengthen(0.02)
print(os.sched_getscheduler(0) == os.SCHED_BATCH, os.nice(0) - nice, flush=True)
subprocess.run(["cat", "/proc/self/sched"], check=False)
"""


def test_children_have_the_longer_time_slice_and_policy_and_niceness_stay() -> None:
    if platform.system() != "Linux":
        return
    ran = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[0] == "True 0"
    reported = re.search(r"^se\.slice +: +(\d+)$", ran.stdout, flags=re.MULTILINE)
    kernel = tuple(int(each) for each in platform.release().split(".")[:2])
    if reported is not None and kernel >= (6, 12) and platform.machine() in {"x86_64", "aarch64"}:
        assert int(reported[1]) == 20_000_000

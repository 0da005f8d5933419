"""How long a process runs before the kernel lets another one have the processor: its time slice.

With more processes than processors, each finds the caches cold at the beginning of a slice. Linux gives slices of about
3 ms. Four processes on two processors then needed 54 s of processor time for 48 seeded disasters, and 42 s with slices
of 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_SYSCALLS = {"x86_64": 314, "aarch64": 274}
"""The numbers of ``sched_setattr``, for which libc has no function before 2.41, by machine."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
"""``struct sched_attr``: size, policy, flags, nice, priority, runtime, deadline, period, and two clamps."""


def lengthen(seconds: float) -> None:
    """Give this process, and all that it starts from now on, time slices of *seconds* (0.0001 to 0.1).

    Policy and niceness stay. Where the kernel can't do that (Linux before 6.12, other systems), nothing changes.
    """
    number = _SYSCALLS.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None or os.sched_getscheduler(0) not in {os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE}:
        return
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    asked = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, round(seconds * 1e9), 0, 0, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(asked, len(asked)), 0)

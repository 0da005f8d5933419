"""Become a program that does not outlive who started it: ``python die_with_parent.py PROGRAM ARGUMENT ...``.

Stdin is one end of a pipe whose other end nobody but the starter holds, and through which nothing is sent. A child of
this process reads it: when it ends, since the starter closed it or died in whatever way, SIGKILL included, the program
is killed. The program itself takes this process's place, with its process id, its exit code and the signals sent to it,
and reads nothing. No more is needed for that than POSIX has, and no module besides the standard library's.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

PIPE = 0
"""Stdin's descriptor."""


def main(command: list[str]) -> NoReturn:
    """Run *command* in this process's place. Raises :class:`OSError` where it can't be run."""
    program = os.getpid()
    if os.fork() == 0:
        _watch_over(program)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, PIPE)
    os.close(nothing)
    os.execv(command[0], command)  # noqa: S606 - the program is our own


def _watch_over(program: int) -> NoReturn:
    while os.read(PIPE, 1):
        pass
    # A program that has ended is nobody's parent any more, and its number may be another's. It gets no time to end in
    # order: the cluster that it would do that on has gone with its starter.
    if os.getppid() == program:
        os.kill(program, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The end of a command: its own exit code, or one clear line for each problem.

Exit codes: 0 done, 1 an error, 2 something would be done (only with ``--exit-code``), 64 wrong usage (``EX_USAGE``, so
that nobody takes a mistyped flag for 2), 130 interrupted, 141 the reader of a pipe has gone.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence

from tightship.cli.object_file import FileError
from tightship.objects.api_errors import KubeError
from tightship.process.settings.loading import BadFlagsError, SettingsError

EXIT_ERROR = 1
EXIT_WOULD_CHANGE = 2
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

COLLECTIONS = (50_000, 10, 10)
"""Python's thresholds for collections of garbage. The objects of a cluster stay, and are many: by the defaults a third
of the first pass over 150,000 pods went by looking through them. With rarer collections the process grows."""

MOST_LINES = 20
"""Lines of problems. The rest is counted: a file that is wrong in one way is wrong in many places."""

_LONGEST = 1000

log = logging.getLogger(__name__)


class CliError(Exception):
    """A problem that a person has to fix. *problems* are whole lines, *code* is the exit code."""

    def __init__(self, *problems: str, code: int = EXIT_ERROR) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.code = code


class UsageError(CliError):
    """Invalid arguments."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems, code=EXIT_USAGE)


def run(program: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run *main* on *arguments* (default: the process's own) and return the exit code. Only ``SystemExit`` escapes."""
    gc.set_threshold(*COLLECTIONS)
    if sys.stderr is None:
        # Closed by whoever started us: nobody wants to read it.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open to the end
    try:
        code = main(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CliError as error:
        return _complain(program, error.problems, error.code)
    except (FileError, SettingsError) as error:
        return _complain(program, error.problems, EXIT_USAGE if isinstance(error, BadFlagsError) else EXIT_ERROR)
    except KubeError as error:
        return _complain(program, [str(error)])
    except BrokenPipeError:
        # At exit Python flushes stdout once more, which would fail on the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        return _complain(program, [str(error)])
    except Exception as error:  # the last resort: a defect too gives one line, with the traceback in the debug log
        log.debug("unexpected error", exc_info=True)
        hint = "" if log.isEnabledFor(logging.DEBUG) else " (the traceback: --log-level debug)"
        return _complain(program, [f"unexpected {type(error).__name__}: {error}{hint}"])
    return code


def _complain(program: str, problems: Sequence[str], code: int = EXIT_ERROR) -> int:
    lines = [line for problem in problems for line in (problem.splitlines() or [""])]
    more = len(lines) - MOST_LINES
    shown = [*(cut(line) for line in lines[:MOST_LINES]), *([f"and {more:,} more"] if more > 0 else [])]
    sys.stderr.write("".join(f"{program}: {line}\n" for line in shown))
    return code


def cut(line: str) -> str:
    """Return *line*, cut if nobody would read that much."""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

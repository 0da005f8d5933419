"""How a command ends: with its own exit code, or with one clear line for each thing that is wrong.

Exit codes: 0 done, 1 an error, 2 something would be done (only with ``--exit-code``), 64 wrong usage (``EX_USAGE``, so
that a mistyped flag is never taken for 2), 130 interrupted, 141 the reader of a pipe has gone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence

from tightship.core.api_errors import KubeError
from tightship.files.object_file import FileError

EXIT_ERROR = 1
EXIT_WOULD_CHANGE = 2
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

log = logging.getLogger(__name__)


class CliError(Exception):
    """Something a person has to set right; *problems* are whole lines, *code* is what the command exits with."""

    def __init__(self, *problems: str, code: int = EXIT_ERROR) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.code = code


class UsageError(CliError):
    """Arguments that don't make sense."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems, code=EXIT_USAGE)


def run(program: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run *main* on *arguments* (the process's own by default) and return the exit code; nothing escapes but exits."""
    try:
        code = main(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except CliError as error:
        return _complain(program, error.problems, error.code)
    except FileError as error:
        return _complain(program, error.problems)
    except KubeError as error:
        return _complain(program, [str(error)])
    except BrokenPipeError:
        # Python flushes stdout once more at exit: into nothing, or it would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        return _complain(program, [str(error)])
    except Exception as error:  # the last resort: a defect is one line too, with the traceback in the debug log
        log.debug("unexpected error", exc_info=True)
        hint = "" if log.isEnabledFor(logging.DEBUG) else " (the traceback: --log-level debug)"
        return _complain(program, [f"unexpected {type(error).__name__}: {error}{hint}"])
    return code


def _complain(program: str, problems: Sequence[str], code: int = EXIT_ERROR) -> int:
    lines = [line for problem in problems for line in (problem.splitlines() or [""])]
    sys.stderr.write("".join(f"{program}: {line}\n" for line in lines))
    return code

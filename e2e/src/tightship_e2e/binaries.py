"""Where the control plane's programs are, as `controlplane/build.py` reports it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "controlplane" / "build.py"
HOW = "build them with `make controlplane` (needs Go 1.26 or newer)"


class NotBuiltError(Exception):
    """Some programs are not built; the message is one line and says how to get them."""


def find(*names: str) -> dict[str, Path]:
    """Paths of the named programs, of all that are built when none is named.

    Raises NotBuiltError when a named one is absent from the cache.
    """
    if not BUILD.exists():
        raise NotBuiltError(f"{BUILD} is absent: tightship-e2e runs from a checkout of the project")
    answer = subprocess.run(
        [sys.executable, str(BUILD), "--where", *names], capture_output=True, text=True, check=False
    )
    if answer.returncode not in {0, 3}:
        raise NotBuiltError(f"{BUILD.name} --where failed: {answer.stderr.strip()}")
    found = dict(line.split("\t", 1) for line in answer.stdout.splitlines())
    absent = [name for name in names if name not in found]
    if absent:
        raise NotBuiltError(f"the control plane is not built ({', '.join(absent)} missing): {HOW}")
    return {name: Path(path) for name, path in found.items()}


def find_or_installed(name: str) -> Path:
    """Path of a program that is built, else of one of that name that is installed.

    Raises NotBuiltError when there is neither.
    """
    try:
        return find(name)[name]
    except NotBuiltError:
        installed = shutil.which(name)
        if installed is None:
            raise NotBuiltError(f"there is no {name}, neither on the PATH nor built here") from None
        return Path(installed)


def environment(programs: Mapping[str, Path], kubeconfig: Path) -> dict[str, str]:
    """Environment in which `kubectl` and `helm` are found and speak to one plane."""
    folders = sorted({str(path.parent) for path in programs.values()})
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    return {"KUBECONFIG": str(kubeconfig), "PATH": path}

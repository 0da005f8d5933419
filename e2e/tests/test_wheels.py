"""The command ``tightship`` as pipx installs it: from wheels into an environment of its own, found by kubectl too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tightship_e2e import binaries
from tightship_e2e.plugin import require_programs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("images"), pytest.mark.takes(2)]

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "node-compactor", "node-refiner", "hpa-scaler", "tightship-cli")
NODES = ROOT / "packages/node-compactor/tests/data/cluster.yaml"
PLAN = ("plan", "-f", NODES, "--now", "2026-03-10T00:00:00Z", "-o", "name")


def run(*words: str | Path, cwd: Path = ROOT, path: str = os.environ["PATH"]) -> str:
    """Return what a command printed; a failure fails the test with what the command said."""
    done = subprocess.run(
        [str(each) for each in words],
        cwd=cwd,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of console scripts of an environment with the wheels and what their lock names, nothing else."""
    root = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        run(
            Path(sys.executable).parent / "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            root,
            cwd=ROOT / "packages" / package,
        )
    run(sys.executable, "-m", "venv", "--without-pip", root / "env")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        root / "env/bin/python",
        "install",
        "--quiet",
        "--no-compile",
        "--no-deps",
    )
    run(*pip, "--require-hashes", "--only-binary", ":all:", "-r", ROOT / "requirements/tightship-cli.lock")
    run(
        *pip,
        "--no-index",
        "--find-links",
        root,
        "tightship-cli",
        "tightship",
        "node-compactor",
        "node-refiner",
        "hpa-scaler",
    )
    run(sys.executable, "-m", "pip", "--python", root / "env/bin/python", "check")
    return root / "env/bin"


def test_the_installed_command_plans_by_either_name(tools: Path) -> None:
    names = run(tools / "tightship", *PLAN)
    assert names.startswith("node/")
    path = f"{tools}:/usr/bin:/bin"
    assert run(tools / "kubectl-tightship", *PLAN, path=path) == names
    assert run(tools / "tightship", "refine", "version").startswith("tightship refine 0.")
    assert run(tools / "tightship", "floors", "version").startswith("tightship floors 0.")


@pytest.mark.controlplane
def test_kubectl_finds_the_command(tools: Path, tmp_path: Path) -> None:
    require_programs("kubectl")
    (tmp_path / "kubectl").symlink_to(binaries.find("kubectl")["kubectl"])
    path = f"{tmp_path}:{tools}:/usr/bin:/bin"
    assert run(tmp_path / "kubectl", "tightship", *PLAN, path=path) == run(tools / "tightship", *PLAN)


def test_bash_completes_commands_and_flags(tools: Path) -> None:
    words = (
        "source <(tightship completion bash); COMP_WORDS=(tightship plan --str); COMP_CWORD=2; "
        '_shtab_tightship >/dev/null; echo "${COMPREPLY[@]}"'
    )
    assert run("bash", "-c", words, path=f"{tools}:/usr/bin:/bin").split() == ["--strategy"]

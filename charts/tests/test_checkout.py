"""A fresh checkout has no symbolic links, and what the pages tell people to type installs its charts, without noise."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tightship_charts.places import CHARTS, INSTALLABLE, UMBRELLA
from tightship_e2e.helm import Helm, objects

ROOT = CHARTS.parent
PAGES = {
    "README.md": UMBRELLA,
    "docs/five-steps.md": UMBRELLA,
    "docs/contributing.md": UMBRELLA,
    **{f"charts/{each}/README.md": each for each in INSTALLABLE},
}
"""The pages that say how to install a chart, and which chart."""
RELEASED = re.compile(r"oci://ghcr\.io/tightship/charts/(\S+) --version \S+")


def git(*arguments: str | Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def install_line(page: Path) -> str:
    """The page's only command that installs a chart, its lines joined, from a checkout as docs/contributing.md says."""
    [line] = re.findall(r"^\$ (helm install .*)$", page.read_text(encoding="utf-8").replace("\\\n", ""), re.MULTILINE)
    return RELEASED.sub(r"charts/\1 --dependency-update", line)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commit at hand on a machine whose files can't be symbolic links."""
    folder = tmp_path_factory.mktemp("clone") / "checkout"
    git("clone", "--quiet", "-c", "core.symlinks=false", ROOT, folder)
    return folder


def test_no_file_in_git_is_a_symbolic_link() -> None:
    files = git("ls-files", "--stage").splitlines()
    assert [each for each in files if each.startswith("120000")] == []
    assert len(files) > 100


def test_no_built_dependency_is_in_git() -> None:
    assert git("ls-files", "charts/*/charts/*") == ""
    assert git("check-ignore", *(f"charts/{each}/charts/tightship-lib-0.1.0.tgz" for each in INSTALLABLE))


@pytest.mark.takes(4)
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_tells_to_type_installs_a_chart_from_a_fresh_checkout(
    checkout: Path, helm: Helm, charts: Path, tmp_path: Path, page: str
) -> None:
    homes = {f"HELM_{each}_HOME": str(tmp_path / each) for each in ("CACHE", "CONFIG", "DATA")}
    path = f"{helm.path.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **homes, "PATH": path, "KUBECONFIG": str(tmp_path / "none")}

    def typed(line: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stderr == ""
        assert done.returncode == 0
        return done.stdout

    git("-C", checkout, "clean", "--quiet", "-dfx", "charts")
    line = install_line(checkout / page)
    assert f" charts/{PAGES[page]} " in line
    said = typed(f"{line} --dry-run=client", checkout)
    # What it does is all that Helm says besides: it builds, and installs.
    assert re.match(r"Saving \d charts\nDeleting outdated charts\nNAME: ", said)
    assert "\nSTATUS: pending-install\n" in said

    template = line.replace("helm install", "helm template")
    rendered = typed(template, checkout)
    assert any(each["kind"] == "Deployment" for each in objects(rendered))
    # Those that tests render have been built one by one: here a part of the umbrella takes the library of the whole.
    assert rendered == typed(template, charts.parent)
    assert git("-C", checkout, "status", "--porcelain") == ""

"""Types what a page says, command by command, on a cluster with a shop; what the page shows must be what is printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

from day import ShopCluster

from tightship_e2e.binaries import find_or_installed
from tightship_e2e.helm import HelmError

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"^```console\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"(aws|az|gcloud|make|pipx|kubectl krew) |kubectl .*port-forward ")
"""What no control plane can answer: clouds, installers, and ports of pods that kwok only says to run."""
RELEASED = re.compile(r"oci://ghcr\.io/tightship/charts/(\S+) --version \S+")


def typed(page: str) -> list[tuple[str, str]]:
    """Each command of a page's consoles with what the page shows below the command, without comments."""
    found = []
    for block in CONSOLE.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            found.append((line.partition("  # ")[0].strip(), shown.strip()))
    return found


class Typist:
    """A person at a shell in *folder*; *words* are what the pages' placeholders stand for on this cluster."""

    def __init__(self, on: ShopCluster, folder: Path, words: dict[str, str]) -> None:
        self.on = on
        self.folder = folder
        servers = ("http://localhost:9090", "http://prometheus.monitoring.svc:9090")
        self._words = {**dict.fromkeys(servers, on.metrics.url), "charts/": f"{on.charts}/", **words}
        programs = folder / "programs"
        programs.mkdir()
        for name in ("kubectl", "helm"):
            (programs / name).symlink_to(find_or_installed(name))
        path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        homes = {f"HELM_{each}_HOME": str(folder / each) for each in ("CACHE", "CONFIG", "DATA")}
        self._environment = {
            **os.environ,
            **homes,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
            "KUBECONFIG": str(on.provider.kubeconfig),
        }

    async def page(self, name: str, *, first: str = "", last: str = "") -> None:
        """Type the page's commands, from the first that contains *first* up to the one that contains *last*.

        A line's end counts as contained.
        """
        lines = typed(name)
        begin = next(place for place, (line, _) in enumerate(lines) if first in line)
        end = next((place for place, (line, _) in enumerate(lines) if last and last in f"{line}\n"), len(lines) - 1)
        for line, shown in lines[begin : end + 1]:
            await self.type(line, shown)

    async def type(self, line: str, shown: str = "") -> str:
        """Type one command; return what it printed."""
        if ELSEWHERE.match(line):
            return ""
        if line.startswith("helm test "):
            release, namespace = re.findall(r"helm test (\S+) -n (\S+)", line)[0]
            await self._tested(release, namespace)
            return ""
        # The charts at hand are those of the next release, built already, and other tests use them.
        line = RELEASED.sub(r"charts/\1", line)
        line = line.replace(".venv/bin/", "").replace(" --dependency-update", "")
        for placeholder, meant in self._words.items():
            line = line.replace(placeholder, meant)
        done = await asyncio.to_thread(self._run, line)
        if shown:
            assert done.stdout.strip() == shown, f"{line}\n{done.stdout}{done.stderr}"
        else:
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def _tested(self, release: str, namespace: str) -> None:
        async def passed() -> bool:
            with contextlib.suppress(HelmError):
                return bool(await self.on.provider.tested(release, namespace))
            return False

        await self.on.until(passed, f"helm test {release}")

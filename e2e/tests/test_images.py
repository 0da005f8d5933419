"""What is in the images: the commands of ``images/Dockerfile``, run into empty directories of this machine.

The interpreter is the one of the tests, and the packages come from the index that pip is configured for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from dockerfile import ROOT, commands
from packaging.requirements import Requirement

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("images"), pytest.mark.takes(5)]

PACKAGES = {"hpa-scaler": "hpa_scaler", "node-compactor": "node_compactor", "node-refiner": "node_refiner"}
BUILDER = "builder"
FOREIGN = (
    "tightship_simulator",
    "tightship_testkit",
    "tightship_e2e",
    "pytest",
    "hypothesis",
    "hatchling",
    "pip",
    "setuptools",
)
COMMANDS = {"plan", "explain", "run", "version"}
AT_MOST = {"hpa-scaler": 48 * 2**20, "node-compactor": 128 * 2**20, "node-refiner": 128 * 2**20}
"""Bytes of an environment: what the lock names, with its byte-code, is some 95 MB with numpy, and 34 without."""

UNREACHABLE = re.compile(r"\(from versions: none\)|ConnectionError|NameResolutionError|Timeout|ProxyError")

LOOK = """
import importlib.metadata, json, pathlib, sys
site = pathlib.Path(next(each for each in sys.path if each.endswith("site-packages")))
found, owned = {}, set()
for each in importlib.metadata.distributions():
    found[each.name.lower().replace("_", "-")] = each.version
    owned |= {pathlib.Path(each.locate_file(file)).resolve() for file in each.files}
stray = [str(each) for each in site.rglob("*") if each.is_file() and each.suffix != ".pyc" and each not in owned]
print(json.dumps({"found": found, "stray": stray}))
"""

IMPORT_ALL = """
import importlib, pkgutil, sys
for root in map(importlib.import_module, sys.argv[1:]):
    for each in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
"""


IMPORT_NONE = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name, error
    else:
        print(name)
"""


class Content(NamedTuple):
    """What an image gets: its controller's environment."""

    controller: str
    environment: Path
    locked: dict[str, str]
    """The files that its locked requirements alone have made."""

    def python(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run *program* with the environment's interpreter, which sees nothing else."""
        return _call(self.environment / "bin/python", "-I", "-c", program, *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the controller's console script."""
        return _call(self.environment / "bin" / self.controller, *arguments)


def _call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return subprocess.run(
        [str(each) for each in words], env=environment, cwd="/", capture_output=True, text=True, check=False
    )


def build(controller: str, root: Path) -> Content:
    """Run what the Dockerfile runs for *controller*, with *root* in the place of the image's root directory."""
    *locked, last = commands(f"build-{controller}")
    assert [each.split()[1] for each in locked] == ["builder", "locked"]
    for command in locked[(root / BUILDER).exists() :]:  # the stage of the tools is one for all images
        step(command, root)
    made = files(root)
    step(last, root)
    return Content(controller, root / "opt/tightship", made)


def step(command: str, root: Path) -> None:
    """Run a command of the Dockerfile with *root* in the place of the root directory."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000"}
    here = re.sub(r"(?<= )/(?=builder|wheels|opt/)", f'"{root}"/', command)
    done = subprocess.run(
        ["/bin/sh", "-c", here], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        missing = "pip reaches no package index; configure one to try what is in the images"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    assert done.returncode == 0, f"{here}\n{done.stdout}{done.stderr}"


def files(root: Path) -> dict[str, str]:
    """Every file under *root*: its mode, and its target or the hash of its content."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = oct(stat.S_IMODE(path.lstat().st_mode))
        if path.is_symlink():
            found[str(path.relative_to(root))] = f"{mode} {path.readlink()}"
        elif path.is_file():
            found[str(path.relative_to(root))] = f"{mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root directory of every image, one after another: an environment belongs to its path."""
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="module")
def built() -> dict[str, Content]:
    """What has been built so far, by controller."""
    return {}


@pytest.fixture(scope="module", params=sorted(PACKAGES))
def content(request: pytest.FixtureRequest, place: Path, built: dict[str, Content]) -> Iterator[Content]:
    """What the image of each controller gets."""
    built[request.param] = build(request.param, place)
    yield built[request.param]
    for each in place.iterdir():
        if each.name != BUILDER:
            shutil.rmtree(each)


def test_every_command_of_a_controller_answers(content: Content) -> None:
    version = content.command("version")
    assert version.stdout.startswith(f"{content.controller} "), version.stderr
    listed = set(re.findall(r"^    ([a-z]+) ", content.command("--help").stdout, flags=re.MULTILINE))
    assert listed >= COMMANDS
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda name: content.command(name, "--help"), listed)
        for name, asked in zip(listed, answers, strict=True):
            assert asked.returncode == 0, asked.stderr
            assert asked.stdout.startswith(f"usage: {content.controller} {name}")


def test_every_module_of_a_controller_finds_what_it_imports(content: Content) -> None:
    # What plans needs NumPy, which the hpa-scaler does without: it imports as much of tightship as it needs.
    shared = () if content.controller == "hpa-scaler" else ("tightship",)
    imported = content.python(IMPORT_ALL, *shared, PACKAGES[content.controller])
    assert imported.returncode == 0, imported.stderr


def test_no_other_controller_and_nothing_of_development_is_in_an_image(content: Content) -> None:
    siblings = set(PACKAGES.values()) - {PACKAGES[content.controller]}
    spared = ("numpy",) if content.controller == "hpa-scaler" else ()
    tried = content.python(IMPORT_NONE, *sorted(siblings), *FOREIGN, *spared)
    assert (tried.returncode, tried.stdout, tried.stderr) == (0, "", "")


def test_an_image_holds_what_its_lock_names_and_no_file_besides(content: Content) -> None:
    lock = (ROOT / f"requirements/{content.controller}.lock").read_text()
    named = [Requirement(each) for each in re.findall(r"^([a-z0-9][^\\\n]*?) *\\?$", lock, flags=re.MULTILINE)]
    expected = {each.name: str(each.specifier)[2:] for each in named if not each.marker or each.marker.evaluate()}
    looked = content.python(LOOK)
    assert looked.returncode == 0, looked.stderr
    seen = json.loads(looked.stdout)
    assert len(expected) > 20
    assert seen["found"] == {**expected, "tightship": "0.1.0", content.controller: "0.1.0"}
    assert seen["stray"] == []


def test_an_image_needs_no_writable_file_system(content: Content) -> None:
    before = files(content.environment)
    assert content.command("plan", "--help").returncode == 0
    assert files(content.environment) == before
    code = content.environment.glob(
        f"lib/python*/site-packages/{PACKAGES[content.controller]}/__pycache__/__init__.*.pyc"
    )
    flags = [int.from_bytes(each.read_bytes()[4:8], "little") for each in code]
    assert flags == [0b01]  # by the hash of its source, which is not looked at again


def test_the_size_of_an_image_is_bounded(content: Content, capsys: pytest.CaptureFixture[str]) -> None:
    size = sum(each.lstat().st_size for each in content.environment.rglob("*") if not each.is_dir())
    with capsys.disabled():
        print(f"\n{content.controller}: {size / 2**20:.0f} MiB on top of the base image")
    assert size <= AT_MOST[content.controller]


@pytest.mark.parametrize("content", ["node-refiner"], indirect=True)
def test_building_again_gives_the_same_bytes(content: Content, built: dict[str, Content], place: Path) -> None:
    """The locks of the controllers of nodes are one: what comes of them was made twice, in one place."""
    locks = {(ROOT / f"requirements/{name}.lock").read_bytes() for name in ("node-compactor", "node-refiner")}
    if len(locks) == 1 and "node-compactor" in built:
        again = built["node-compactor"].locked
    else:
        shutil.rmtree(place)
        again = build(content.controller, place).locked
    assert again == content.locked
    assert len(again) > 1000
    first = {each.name: each.read_bytes() for each in (place / "wheels").iterdir()}
    shutil.rmtree(place / "wheels")
    step(f"images/install.sh wheels /builder /wheels {content.controller}", place)
    assert {each.name: each.read_bytes() for each in (place / "wheels").iterdir()} == first
    assert len(first) == 2

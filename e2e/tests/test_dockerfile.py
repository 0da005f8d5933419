"""What the images promise, read from ``images/Dockerfile``; what is in them is looked at in ``test_images.py``."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from dockerfile import DOCKERFILE, ROOT, commands, inherited, read

PROJECTS = [tomllib.loads(each.read_text())["project"] for each in sorted(ROOT.glob("packages/*/pyproject.toml"))]
# The command for people, tightship-cli, has no chart: pipx installs it.
CONTROLLERS = [each["name"] for each in PROJECTS if "scripts" in each and (ROOT / "charts" / each["name"]).is_dir()]
EVERY = pytest.mark.parametrize("controller", CONTROLLERS)
UNWANTED = re.compile(r"\b(apt|apt-get|dpkg|apk|curl|wget|git|gcc|make|pip install|pip3 install)\b(?!\*)")


def last(controller: str, word: str) -> str:
    """What the last instruction *word* of the target of *controller* says."""
    return [each.rest for each in inherited(controller) if each.word == word][-1]


def test_every_controller_has_a_target_and_nothing_else_is_one() -> None:
    stages = read()
    started_from = {stage.base for stage in stages.values()}
    copied_from = set(re.findall(r"--from=(\S+)", DOCKERFILE.read_text()))
    assert {name for name in stages if name not in started_from | copied_from} == set(CONTROLLERS)


@EVERY
def test_an_image_runs_its_controller_as_a_numbered_user_that_is_not_root(controller: str) -> None:
    user = re.fullmatch(r"(\d+):(\d+)", last(controller, "USER"))
    assert user
    assert int(user[1]) > 0
    assert int(user[2]) > 0
    assert json.loads(last(controller, "ENTRYPOINT")) == [controller]
    assert json.loads(last(controller, "CMD")) == ["run"]


@EVERY
def test_an_image_gets_its_own_environment_and_the_licence_and_no_other_file(controller: str) -> None:
    copies = [each.rest for each in inherited(controller) if each.word in ("COPY", "ADD")]
    assert copies == ["LICENSE /licenses/LICENSE", f"--from=build-{controller} /opt/tightship /opt/tightship"]


@EVERY
def test_nothing_is_installed_or_fetched_in_an_image_beyond_the_copied_environment(controller: str) -> None:
    assert [command for command in commands(controller) if UNWANTED.search(command)] == []


@EVERY
def test_a_build_sees_the_lock_and_the_sources_of_its_controller_alone(controller: str) -> None:
    copied = [each.rest.split()[0] for each in inherited(f"build-{controller}") if each.word == "COPY"]
    assert copied == [
        "images/install.sh",
        "requirements/build.lock",
        f"requirements/{controller}.lock",
        "packages/common",
        f"packages/{controller}",
    ]
    assert all((ROOT / each).exists() for each in copied)


@EVERY
def test_an_image_says_what_it_is(controller: str) -> None:
    labels = " ".join(each.rest for each in inherited(controller) if each.word == "LABEL")
    given = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', labels))
    project = next(each for each in PROJECTS if each["name"] == controller)
    assert given["title"] == controller
    assert given["description"] == project["description"]
    assert given["licenses"] == project["license"]
    assert {"version", "revision", "created", "source", "vendor", "base.name"} <= set(given)


def test_the_build_names_no_address_to_download_from() -> None:
    for path in (DOCKERFILE, ROOT / "images/install.sh"):
        assert "://" not in path.read_text(), path

"""What ``make check`` and ``make lint-workflows`` don't ask of the workflows."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile import DOCKERFILE, ROOT, read

from tightship_e2e import binaries
from tightship_e2e.charts import copied
from tightship_e2e.plugin import require_programs

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
EVERY = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
USED = re.compile(r"^ *(?:- )?uses: (?!\./)(\S+)@(\S+)(.*)$", flags=re.MULTILINE)


def jobs(name: str) -> dict[str, Any]:
    """The jobs of workflow *name*."""
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())["jobs"]
    return found


@EVERY
def test_an_action_is_pinned_to_a_commit_and_says_which_version_that_is(path: Path) -> None:
    text = path.read_text()
    for action, commit, comment in USED.findall(text):
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


def test_an_action_has_one_pin_in_all_workflows() -> None:
    pins = {use for path in WORKFLOWS for use in USED.findall(path.read_text())}
    assert sorted(action for action, _, _ in pins) == sorted({action for action, _, _ in pins})


@EVERY
def test_a_job_gives_up_in_time_and_names_its_permissions(path: Path) -> None:
    for name, job in jobs(path.name).items():
        assert "permissions" in job, name
        assert "uses" in job or job["timeout-minutes"] <= 90, name


@pytest.mark.parametrize("job", ["try", "publish"])
def test_every_target_is_built_and_published(job: str) -> None:
    stages = read()
    controllers = jobs("images.yml")[job]["strategy"]["matrix"]["controller"]
    assert {f"build-{each}" for each in controllers} == {each for each in stages if each.startswith("build-")}


def test_a_release_waits_for_every_test() -> None:
    release = jobs("release.yml")
    assert set(release["images"]["needs"]) == {"version", "ci", "charts", "e2e", "long"}
    assert "images" in release["publish-charts"]["needs"]


def test_every_test_is_run_by_some_job_and_by_one() -> None:
    found = {job: scripts("ci.yml", job)[-1] for job in ("unit", "controlplane")}
    assert found == {"unit": "make test-fast", "controlplane": "make test-slow"}
    assert scripts("charts.yml", "tests")[-1] == "make charts-test"
    makefile = (ROOT / "Makefile").read_text()
    run = re.findall(r"^\t@\$\(PYTEST\) (\S+(?: \S+)*?)(?: -m \"(.*)\")? \$\(ARGS\)$", makefile, flags=re.MULTILINE)
    assert [each for each in run if "scheduler_agreement" not in each[0]] == [
        ("packages charts/tests e2e/tests", ""),
        ("packages charts/tests e2e/tests", "$(FAST)"),
        ("packages e2e/tests", "not ($(FAST))"),
        ("charts/tests", ""),
    ]


def test_a_change_lands_after_the_checks_all_tests_and_a_slice_of_the_disasters() -> None:
    lines = [each for each in (ROOT / ".ci/run").read_text().splitlines() if each.startswith("make ")]
    assert lines[:-1] == ["make check", "make lint-workflows", "make test"]
    assert re.fullmatch(r"make soak SEEDS=\d+ FIRST=\$\(\(16#\$first \* \d+\)\)", lines[-1])


def test_what_make_test_has_a_sample_of_is_tried_at_length_each_night_and_before_a_release() -> None:
    words = {job: [each.split()[:2] for each in scripts("long.yml", job)] for job in jobs("long.yml")}
    once = {"skew": [["make", "skew"]], "disasters": [["make", "soak"]]}
    assert words == {"agreement": [["make", "agreement"]] * 2, **once}
    # Those of make test, and as many as it once had.
    assert "CLUSTERS=200 FIRST_SEED=0" in scripts("long.yml", "agreement")[0]


def test_kind_and_the_charts_are_tried_on_the_same_versions_of_kubernetes() -> None:
    tried = [each["image"] for each in jobs("e2e.yml")["kind"]["strategy"]["matrix"]["kubernetes"]]
    minors = [re.match(r"kindest/node:v(\d+\.\d+)\.\d+@sha256:[0-9a-f]{64}$", image) for image in tried]
    rendered = jobs("charts.yml")["charts"]["strategy"]["matrix"]["kubernetes"]
    assert [match and match[1] for match in minors] == [version.rpartition(".")[0] for version in rendered]


def test_kind_is_of_the_version_that_is_built_here() -> None:
    [used] = [step["with"] for step in jobs("e2e.yml")["kind"]["steps"] if "kind-action" in step.get("uses", "")]
    pinned = (ROOT / "e2e/controlplane/kind/go.mod").read_text()
    assert f"sigs.k8s.io/kind {used['version']} " in pinned


def test_every_image_is_scanned_by_night_as_built_now_and_as_released() -> None:
    for job in ("rebuilt", "released"):
        assert jobs("scan.yml")[job]["strategy"]["matrix"] == jobs("images.yml")["publish"]["strategy"]["matrix"]
        [scan] = [each["with"] for each in jobs("scan.yml")[job]["steps"] if "scan-action" in each.get("uses", "")]
        assert (scan["severity-cutoff"], scan["only-fixed"]) == ("high", True)


def test_every_pin_has_somebody_who_moves_it() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    watched = {
        (each["package-ecosystem"], path)
        for each in updates
        for path in each.get("directories", [each.get("directory")])
    }
    modules = {("gomod", f"/{each.parent.relative_to(ROOT)}") for each in ROOT.glob("**/go.mod")}
    assert watched == {("github-actions", "/"), ("docker", "/images"), *modules}
    assert scripts("locks.yml", "propose")[0].startswith('make lock UPGRADE="--upgrade --exclude-newer ')


def test_the_site_that_is_published_is_the_one_that_a_change_has_to_build() -> None:
    assert scripts("site.yml", "build") == ["make site"]
    [artifact] = [
        each["with"] for each in jobs("site.yml")["build"]["steps"] if "pages-artifact" in each.get("uses", "")
    ]
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert artifact["path"] == project["site_dir"]
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert check
    assert check[1].rstrip().endswith(" site")


def test_the_python_of_the_images_is_one_that_the_controllers_are_tested_with() -> None:
    base = r"^FROM docker\.io/library/python:(\d+\.\d+)-slim-\w+@sha256:[0-9a-f]{64} AS python$"
    tag = re.search(base, DOCKERFILE.read_text(), flags=re.MULTILINE)
    assert tag
    assert tag[1] in jobs("ci.yml")["unit"]["strategy"]["matrix"]["python"]


def test_what_is_published_is_what_the_charts_install() -> None:
    registry = "ghcr.io/tightship"
    controllers = ("node-compactor", "node-refiner", "hpa-scaler")
    images = {name: yaml.safe_load((ROOT / f"charts/{name}/values.yaml").read_text())["image"] for name in controllers}
    assert {f"{each['registry']}/{each['repository']}" for each in images.values()} == {
        f"{registry}/{name}" for name in controllers
    }
    assert jobs("images.yml")["publish"]["env"]["IMAGE"] == registry + "/${{ matrix.controller }}"
    assert jobs("release.yml")["publish-charts"]["env"]["CHARTS"] == f"{registry}/charts"
    assert yaml.safe_load((ROOT / ".github/workflows/e2e.yml").read_text())["env"]["REGISTRY"] == registry
    assert f"\nREGISTRY ?= {registry}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("tag", "owner", "section", "said"),
    [
        ("v0.0.0", "tightship", "", "packages/common/pyproject.toml has another version than the tag v0.0.0"),
        ("", "Somebody", "", "Somebody can't publish ghcr.io/tightship"),
        ("", "tightship", "Unreleased", "CHANGELOG.md has no section"),
        ("", "Tightship", "", ""),
    ],
)
def test_a_release_begins_only_for_the_owner_with_notes_and_a_tag_that_is_the_version_of_the_packages(
    tag: str, owner: str, section: str, said: str, tmp_path: Path
) -> None:
    for package in ROOT.glob("packages/*/pyproject.toml"):
        (tmp_path / package.relative_to(ROOT)).parent.mkdir(parents=True)
        (tmp_path / package.relative_to(ROOT)).write_bytes(package.read_bytes())
    version = tomllib.loads((ROOT / "packages/common/pyproject.toml").read_text())["project"]["version"]
    (tmp_path / "CHANGELOG.md").write_text(f"## [{section or version}]\n")
    output = tmp_path / "output"
    facts = {"GITHUB_REF_NAME": tag or f"v{version}", "GITHUB_REPOSITORY_OWNER": owner, "GITHUB_OUTPUT": str(output)}
    [script] = scripts("release.yml", "version")
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **facts}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode != 0) == bool(said)
    assert said in done.stdout
    assert said or output.read_text() == f"version={version}\n"


PUSHED = """#!/bin/bash
if [ "$1" = push ]; then
  echo "Pushed: $3" >&2
  echo "Digest: sha256:1234" >&2
else
  exec "$HELM" "$@"
fi
"""
"""A Helm that does all but push."""


def scripts(workflow: str, job: str) -> list[str]:
    """What the steps of a job run."""
    return [step["run"] for step in jobs(workflow)[job]["steps"] if "run" in step]


def run(script: str, folder: Path, **env: str) -> None:
    """Run a step in a checkout's charts, as GitHub does, without a registry and without a way to sign."""
    copied(ROOT / "charts", folder / "charts")
    programs = folder / "programs"
    programs.mkdir()
    for name, text in {"helm": PUSHED, "cosign": '#!/bin/bash\necho "$@" >>"$RUNNER_TEMP/signed"\n'}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    home = {f"HELM_{each}_HOME": str(folder / each) for each in ("CACHE", "CONFIG", "DATA")}
    helm = {"HELM": str(binaries.find("helm")["helm"]), "PATH": f"{programs}:{os.environ['PATH']}"}
    environment: Mapping[str, str] = {**home, **helm, "RUNNER_TEMP": str(folder), **env}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.controlplane
@pytest.mark.takes(8)
@pytest.mark.parametrize("kubernetes", jobs("charts.yml")["charts"]["strategy"]["matrix"]["kubernetes"])
def test_what_lints_and_renders_the_charts_passes(kubernetes: str, tmp_path: Path) -> None:
    require_programs("helm")
    [script] = scripts("charts.yml", "charts")
    run(script, tmp_path, KUBERNETES=kubernetes)


IMAGES, CHANGES = "artifacthub.io/images", "artifacthub.io/changes"
NOTES = """## [Unreleased]

- Later.

## [1.2.3] - 2026-12-01

Words before.

### Added

- **One**: a "quoted" thing,
  over two lines.

### Fixed

- Two.

## [1.2.2]

- Before.
"""


@pytest.mark.controlplane
@pytest.mark.takes(6)
def test_a_chart_is_published_with_each_of_its_files_once_and_signed(tmp_path: Path) -> None:
    require_programs("helm")
    script = scripts("release.yml", "publish-charts")[-1]
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    (tmp_path / ".github").symlink_to(ROOT / ".github")
    run(script, tmp_path, VERSION="1.2.3", CHARTS="registry/charts", SERVER="s", REPOSITORY="r", REF="refs/tags/v1.2.3")
    charts = ("node-compactor", "node-refiner", "hpa-scaler", "tightship")
    for chart in charts:
        with tarfile.open(tmp_path / f"{chart}-1.2.3.tgz") as package:
            names = package.getnames()
            files = [package.extractfile(name) for name in names if name.endswith("Chart.yaml")]
            read = [yaml.safe_load(file) for file in files if file is not None]
        assert f"{chart}/Chart.yaml" in names
        assert {each["version"] for each in read} == {"1.2.3"}
        assert {each.get("appVersion", "1.2.3") for each in read} == {"1.2.3"}
        images = [yaml.safe_load(each["annotations"][IMAGES]) for each in read if each["name"] == chart]
        assert {each["image"].rpartition(":")[2] for found in images for each in found} == {"1.2.3"}
        for each in (each for each in read if each["type"] == "application"):
            assert yaml.safe_load(each["annotations"][CHANGES]) == [
                {"kind": "added", "description": 'One: a "quoted" thing, over two lines.'},
                {"kind": "fixed", "description": "Two."},
            ]
        assert any(name.endswith("charts/tightship-lib/Chart.yaml") for name in names)
        assert len(set(names)) == len(names)
    signed = (tmp_path / "signed").read_text().splitlines()
    assert [line for line in signed if line.startswith("sign ")] == [
        f"sign --yes registry/charts/{chart}@sha256:1234" for chart in charts
    ]


def faked(folder: Path, **programs: str) -> str:
    """Put *programs*, scripts of bash, first on the path; return that path."""
    (folder / "programs").mkdir()
    for name, text in programs.items():
        (folder / "programs" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "programs" / name).chmod(0o755)
    return f"{folder / 'programs'}:{os.environ['PATH']}"


def test_artifact_hub_is_told_the_id_of_each_chart(tmp_path: Path) -> None:
    [script] = scripts("release.yml", "artifacthub")
    (tmp_path / "artifacthub-repo.yml").write_bytes((ROOT / "artifacthub-repo.yml").read_bytes())
    path = faked(tmp_path, oras='echo "$2 $(grep -v "^#" artifacthub-repo.yml)" >>pushed')
    facts = {"IDS": "node-compactor 1-2\ntightship 3-4", "CHARTS": "registry/charts"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **facts, "PATH": path}, timeout=60, check=True)
    assert (tmp_path / "pushed").read_text().splitlines() == [
        "registry/charts/node-compactor:artifacthub.io repositoryID: 1-2",
        "registry/charts/tightship:artifacthub.io repositoryID: 3-4",
    ]


def test_a_release_has_its_notes_the_command_and_a_manifest_that_krew_installs_it_by(tmp_path: Path) -> None:
    [script] = scripts("release.yml", "notes")
    runners = jobs("release.yml")["command"]["strategy"]["matrix"]["runner"]
    platforms = ("linux-amd64", "linux-arm64", "darwin-arm64")
    for runner, platform in zip(runners, platforms, strict=True):
        built = tmp_path / f"built/command-{runner}"
        for file in (f"plugin/kubectl-tightship-{platform}.tar.gz", "wheels/tightship_cli-1.2.3-py3-none-any.whl"):
            (built / file).parent.mkdir(parents=True)
            (built / file).write_text(platform)
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    (tmp_path / ".krew.yaml").symlink_to(ROOT / ".krew.yaml")
    gh = 'if [ "$1" = release ]; then printf "%s\\n" "${@: -7}" >"$RUNNER_TEMP/published"; fi'
    path = faked(tmp_path, gh=gh, cosign='echo signed >"$4"')
    facts = {"VERSION": "1.2.3", "RUNNER_TEMP": str(tmp_path), "GITHUB_RUN_ID": "7", "GITHUB_REF_NAME": "v1.2.3"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    environment = {**os.environ, **facts, "GITHUB_REPOSITORY": "o/r", "PATH": path}
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=60, check=True)
    notes = (tmp_path / "notes.md").read_text()
    assert "Words before." in notes
    assert not {"Later.", "Before."} & set(notes.replace("- ", "").splitlines())
    assets = tmp_path / "assets"
    assert (tmp_path / "published").read_text().split() == sorted(each.name for each in assets.iterdir())
    sums = dict(reversed(line.split()) for line in (assets / "checksums.txt").read_text().splitlines())
    assert {*sums, "checksums.txt", "checksums.txt.sigstore.json"} == {each.name for each in assets.iterdir()}
    plugin = yaml.safe_load((assets / "tightship.yaml").read_text())
    assert plugin["metadata"]["name"] == "tightship"
    assert plugin["spec"]["version"] == "v1.2.3"
    for each, platform in zip(plugin["spec"]["platforms"], platforms, strict=True):
        assert "-".join(each["selector"]["matchLabels"][key] for key in ("os", "arch")) == platform
        where, _, archive = each["uri"].rpartition("/")
        assert (where, archive) == (
            "https://github.com/tightship/tightship/releases/download/v1.2.3",
            f"kubectl-tightship-{platform}.tar.gz",
        )
        assert each["sha256"] == sums[archive]

#!/usr/bin/env python3
"""Build the control plane's programs into a cache outside the repository.

    build.py              build what is missing, one line per tool
    build.py kwok helm    only these
    build.py --where      print "tool<TAB>path" for every tool; exit 3 if one is not built
    build.py --print-dir  print the cache directory

A folder beside this file that holds a go.mod is one Go module; the table `TOOLS`
says which programs come out of it. The binaries of a module live in
`<cache>/controlplane/<key>/`, and the key is a checksum over the module's go.mod,
go.sum and Go files and over the flags of its tools: a change of one module never
rebuilds another. A binary is built under a temporary name and then renamed, so a
build that was killed leaves nothing that looks finished.

TIGHTSHIP_KUBERNETES names an older minor release of Kubernetes, which has a module of
its own: `TIGHTSHIP_KUBERNETES=1.34 build.py` builds what is in `kubernetes-1.34`.

Needs only Python 3.11 and, to build, Go. Exit codes: 0 done, 1 a build failed,
2 Go is missing or too old, 3 (`--where`) something is not built.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Tool:
    """A program: its name, its module's folder, its package, what the linker sets.

    `sets` maps a Go variable to a value, in which `{version}`, `{major}`, `{minor}`
    and `{patch}` are those of the module path `pinned` in go.mod.
    """

    name: str
    module: str
    package: str
    pinned: str
    sets: tuple[tuple[str, str], ...] = ()
    tags: str = ""


RELEASE = "TIGHTSHIP_KUBERNETES"
"""The environment variable that names the minor release of Kubernetes, such as 1.34; unset, it is the newest."""


def _release() -> str:
    """The folder of the release that is asked for. Exits with 1 if there is none."""
    wanted = os.environ.get(RELEASE, "")
    if not wanted:
        return "kubernetes"
    known = sorted(each.name.partition("-")[2] for each in HERE.glob("kubernetes-*"))
    if wanted not in known:
        sys.exit(f"{RELEASE} is {wanted!r}; allowed is {', '.join(known)}, or nothing for the newest release")
    return f"kubernetes-{wanted}"


KUBERNETES = _release()


def _kubernetes(name: str) -> Tool:
    # Without these a server calls itself v0.0.0, and Helm refuses charts with a kubeVersion.
    versions = (
        ("k8s.io/component-base/version.gitVersion", "{version}"),
        ("k8s.io/component-base/version.gitMajor", "{major}"),
        ("k8s.io/component-base/version.gitMinor", "{minor}"),
    )
    pinned = "k8s.io/kubernetes"
    return Tool(name, KUBERNETES, f"{pinned}/cmd/{name}", pinned, versions)


def _prometheus(name: str) -> Tool:
    # The module of Prometheus 3.13.5 is v0.313.5; unset, a server tells its clients no version.
    versions = (("github.com/prometheus/common/version.Version", "{minor[0]}.{minor[1]}{minor[2]}.{patch}"),)
    pinned = "github.com/prometheus/prometheus"
    # Without the tag, most of the build is the clients of clouds whose machines it could discover.
    return Tool(name, "prometheus", f"{pinned}/cmd/{name}", pinned, versions, "remove_all_sd")


# The order is that of the build: what is needed first comes first.
TOOLS = (
    Tool("etcd", KUBERNETES, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kube-controller-manager"),
    Tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"),
    Tool(
        "helm",
        "helm",
        "helm.sh/helm/v4/cmd/helm",
        "helm.sh/helm/v4",
        (("helm.sh/helm/v4/internal/version.version", "{version}"),),
    ),
    _kubernetes("kubectl"),
    _prometheus("prometheus"),
    _prometheus("promtool"),
    Tool("promql", "promql", "tightship.dev/e2e/controlplane/promql", "github.com/prometheus/prometheus"),
    Tool("httpproxy", "httpproxy", "tightship.dev/e2e/controlplane/httpproxy", "golang.org/x/net"),
    Tool("kube-score", "lint", "github.com/zegl/kube-score/cmd/kube-score", "github.com/zegl/kube-score"),
    Tool("kind", "kind", "sigs.k8s.io/kind", "sigs.k8s.io/kind"),
)


class BuildError(Exception):
    """A build can't start or failed; `code` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def cache_root() -> Path:
    """The directory that holds one folder per module key."""
    if own := os.environ.get("TIGHTSHIP_CACHE"):
        return Path(own) / "controlplane"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tightship" / "controlplane"


def pinned_version(tool: Tool) -> str:
    """The version of the tool's module as its go.mod requires it, such as v1.2.3."""
    text = (HERE / tool.module / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s+{re.escape(tool.pinned)} (v\S+)", text, re.MULTILINE)
    if not found:
        raise BuildError(f"{tool.module}/go.mod does not require {tool.pinned}")
    return found[1]


def go_flags(tool: Tool) -> list[str]:
    """The flags of `go build`; they are part of the key."""
    version = pinned_version(tool)
    major, minor, patch = version.lstrip("v").split(".", 2)
    fields = {"version": version, "major": major, "minor": minor, "patch": patch}
    ldflags = " ".join(["-s -w", *(f"-X {name}={value.format(**fields)}" for name, value in tool.sets)])
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", ldflags]
    return [*flags, "-tags", tool.tags] if tool.tags else flags


def module_key(module: str) -> str:
    """16 hex digits over the module's sources and its tools' flags."""
    digest = hashlib.sha256()
    folder = HERE / module
    sources = [folder / "go.mod", folder / "go.sum", *folder.rglob("*.go")]
    for source in sorted(sources):
        digest.update(f"{source.relative_to(folder)}\0".encode() + source.read_bytes() + b"\0")
    for tool in TOOLS:
        if tool.module == module:
            digest.update("\0".join([tool.name, tool.package, *go_flags(tool)]).encode())
    return digest.hexdigest()[:16]


def locate(tools: tuple[Tool, ...] = TOOLS) -> dict[Tool, Path]:
    """Where each tool's binary is, or will be."""
    keys = {module: module_key(module) for module in {tool.module for tool in tools}}
    return {tool: cache_root() / keys[tool.module] / tool.name for tool in tools}


def check_go(modules: set[str]) -> str:
    """The path of the go command, once it is known to be new enough for every module."""
    go = shutil.which("go")
    wanted = (1, 0)
    for module in modules:
        line = re.search(r"^go (\d+)\.(\d+)", (HERE / module / "go.mod").read_text(), re.MULTILINE)
        if line:
            wanted = max(wanted, (int(line[1]), int(line[2])))
    need = f"the control plane is built with Go {wanted[0]}.{wanted[1]} or newer"
    if not go:
        raise BuildError(f"{need}; no `go` is on the PATH", 2)
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True)
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if found and (int(found[1]), int(found[2])) < wanted:
        raise BuildError(f"{need}; {go} is {answer.stdout.strip()}", 2)
    return go


def build(go: str, tool: Tool, target: Path) -> None:
    """Build one tool; raises BuildError with the compiler's last lines."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.{os.getpid()}")
    command = [go, "build", *go_flags(tool), "-o", str(half), tool.package]
    # A go.work or a GOFLAGS of the caller must not change what is built under this key.
    env = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    try:
        result = subprocess.run(command, cwd=HERE / tool.module, env=env, capture_output=True, text=True, check=False)
        if result.returncode:
            tail = "\n".join(result.stderr.splitlines()[-20:])
            raise BuildError(f"{tool.name} does not build:\n{tail}")
        half.rename(target)
    finally:
        half.unlink(missing_ok=True)


def build_missing(tools: tuple[Tool, ...]) -> None:
    """Build what the cache lacks, one line of progress each."""
    places = locate(tools)
    missing = [tool for tool in tools if not places[tool].exists()]
    if not missing:
        print(f"control plane: all {len(tools)} tools are built, in {cache_root()}")
        return
    go = check_go({tool.module for tool in missing})
    for count, tool in enumerate(missing, 1):
        title = f"[{count}/{len(missing)}] {tool.name} {pinned_version(tool)}"
        print(f"{title} ...", end="", flush=True)
        begin = time.monotonic()
        build(go, tool, places[tool])
        size = places[tool].stat().st_size / 2**20
        print(f" {time.monotonic() - begin:.0f} s, {size:.0f} MiB", flush=True)


def main() -> int:
    """Build what is asked for and say how long each took; 1 when Go is missing or too old, or a build failed."""
    parser = argparse.ArgumentParser(description="Build the control plane's programs into a cache.")
    names = ", ".join(tool.name for tool in TOOLS)
    parser.add_argument("tool", nargs="*", help=f"some of {names}; default all")
    parser.add_argument("--where", action="store_true", help="only print each tool's path")
    parser.add_argument("--print-dir", action="store_true", help="only print the cache directory")
    options = parser.parse_args()
    unknown = set(options.tool) - {tool.name for tool in TOOLS}
    if unknown:
        parser.error(f"unknown tool: {', '.join(sorted(unknown))}")
    chosen = tuple(tool for tool in TOOLS if not options.tool or tool.name in options.tool)
    try:
        if options.print_dir:
            print(cache_root())
        elif options.where:
            built = {tool.name: path for tool, path in locate(chosen).items() if path.exists()}
            for name, path in built.items():
                print(f"{name}\t{path}")
            absent = [tool.name for tool in chosen if tool.name not in built]
            if absent:
                print(f"not built: {', '.join(absent)}", file=sys.stderr)
                return 3
        else:
            build_missing(chosen)
    except BuildError as error:
        print(f"\n{error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())

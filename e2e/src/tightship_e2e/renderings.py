"""What Helm renders, once for all workers of a run of tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import msgspec

from tightship_e2e.helm import Helm, HelmError, Json

HOOK = "helm.sh/hook"


class Renderings:
    """Renders charts with *helm*; workers with the same *folder* share what each has rendered.

    A rendering is found again by the files of the chart and of those it depends on, and by all that Helm is told.
    """

    def __init__(self, helm: Helm, folder: Path) -> None:
        self._helm = helm
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(
        self,
        chart: Path,
        values: Mapping[str, object] | None = None,
        *,
        release: str = "rel",
        namespace: str = "ns",
        apis: Sequence[str] | None = (),
        kubernetes: str = "",
        tests: bool = False,
    ) -> list[Json]:
        """Return the objects that *chart* renders: see :meth:`Helm.template`. They belong to the caller."""
        reported = [release, namespace, apis if apis is None else list(apis), kubernetes, values or {}]
        key = hashlib.sha256(f"{self._helm.path} {chart} {content(chart)}".encode() + _text(reported)).hexdigest()
        render = partial(
            self._helm.template,
            chart,
            values,
            release=release,
            namespace=namespace,
            apis=apis,
            kubernetes=kubernetes,
            tests=True,
        )
        found: list[Json] | str = msgspec.json.decode(self._rendered(key, render))
        if isinstance(found, str):
            raise HelmError(found)
        return [each for each in found if tests or not _is_test(each)]

    def _rendered(self, key: str, render: Callable[[], list[Json]]) -> bytes:
        file = self._folder / key
        # Who comes second waits: to render it too would take as long, and a processor.
        with (self._folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                whole = self._folder / f"{key}.whole"
                whole.write_bytes(_made(render))
                whole.rename(file)
        return file.read_bytes()


@cache
def content(chart: Path) -> str:
    """Return a digest of all files of a chart, its dependencies as packages among them."""
    found = hashlib.sha256()
    for folder, folders, names in os.walk(chart):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            found.update(f"{path.relative_to(chart)}\0{path.stat().st_size}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def _made(render: Callable[[], list[Json]]) -> bytes:
    """Return what is rendered as JSON: the objects, or the error as a text."""
    try:
        return _text(render())
    except HelmError as error:
        return _text(str(error))


def _text(value: object) -> bytes:
    return msgspec.json.encode(value)


def _is_test(item: Json) -> bool:
    return (item["metadata"].get("annotations") or {}).get(HOOK) == "test"


__all__ = ["HOOK", "Renderings", "content"]

"""Kubeconfigs of the tests' own control plane."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tightship_testkit.credentials import write_kubeconfig
from tightship_testkit.fault_proxy import FaultProxy

SERVER = "http://127.0.0.1:6443"


def for_a_server(path: Path) -> None:
    write_kubeconfig(path, server=SERVER, ca_file=path.parent / "ca", token="token")


def for_a_proxy(path: Path) -> None:
    base = path.parent / "base"
    if not base.exists():
        for_a_server(base)
    FaultProxy(SimpleNamespace(server=SERVER, ca_file=base, kubeconfig=base)).kubeconfig(path)


@pytest.mark.parametrize("write", [for_a_server, for_a_proxy])
def test_a_kubeconfig_that_is_written_anew_is_whole_at_any_moment(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "kubeconfig"
    ended = threading.Event()

    def keep_writing() -> None:
        while not ended.is_set():
            write(path)

    write(path)
    writers = [threading.Thread(target=keep_writing) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(500):
            assert json.loads(path.read_text())["kind"] == "Config"
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} <= {path.name, "base"}

"""Kubeconfigs of the tests' own control plane."""

import json
import threading
from pathlib import Path

from tightship_testkit.credentials import write_kubeconfig


def test_a_kubeconfig_that_is_written_anew_is_whole_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    ended = threading.Event()

    def write() -> None:
        write_kubeconfig(path, server="https://127.0.0.1:6443", ca_file=tmp_path / "ca", token="token")

    def keep_writing() -> None:
        while not ended.is_set():
            write()

    write()
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
    write()
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]

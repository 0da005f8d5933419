"""Ports that are chosen now and used later."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tightship_simulator import ports


def test_a_port_is_given_once_and_by_the_kernel_to_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("22010\t60999\n")
    monkeypatch.setattr(ports, "EPHEMERAL", tmp_path / "range")
    found = [port for _ in range(100) for port in ports.free_ports(2)]
    assert len(set(found)) == 200
    assert 11_000 <= min(found) < max(found) < 22010


def test_where_the_kernels_range_is_not_known_any_free_port_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "EPHEMERAL", tmp_path / "none")
    assert len(set(ports.free_ports(20))) == 20


GIVEN = """
import sys
from tightship_simulator import ports
ports._below_ephemeral = lambda: int(sys.argv[1])
ports.TRIES = 3
try:
    print(ports.free_ports(1)[0])
except OSError as error:
    print(error)
"""


def test_a_port_that_another_process_was_given_is_given_to_nobody_until_that_one_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def asked(port: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", GIVEN, str(port)], capture_output=True, text=True, check=True
        ).stdout

    [mine] = ports.free_ports(1)
    assert asked(mine) == "no free port on 127.0.0.1 in 3 tries\n"
    # A port that nobody listens on and nobody was given, but for a process that has ended.
    [other] = ports.free_ports(1)
    fcntl.lockf(ports._reservations(), fcntl.LOCK_UN, 1, other)
    assert asked(other) == asked(other) == f"{other}\n"


def test_where_nothing_can_be_written_ports_are_given_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ports._reservations.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    try:
        assert len(set(ports.free_ports(20))) == 20
    finally:
        ports._reservations.cache_clear()

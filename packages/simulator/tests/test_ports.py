"""Ports that are chosen now and used later."""

from __future__ import annotations

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

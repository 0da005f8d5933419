"""Free ports by name."""

from __future__ import annotations

from tightship_simulator import ports


def free_ports(*names: str) -> dict[str, int]:
    """A free port on 127.0.0.1 per name, for what is started on it later: see :func:`ports.free_ports`."""
    return dict(zip(names, ports.free_ports(len(names)), strict=True))

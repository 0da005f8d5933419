"""The program ``node-compactor``; also ``python -m node_compactor``."""

from __future__ import annotations

from tightship.process.starting import start


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    start("node_compactor.controller")


if __name__ == "__main__":
    main()

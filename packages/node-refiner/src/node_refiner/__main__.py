"""The program ``node-refiner``; also ``python -m node_refiner``."""

from __future__ import annotations

from tightship.process.starting import start


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    start("node_refiner.controller")


if __name__ == "__main__":
    main()

"""The program ``tightship``; also ``python -m tightship_cli``, and ``kubectl tightship`` by its other name."""

from __future__ import annotations

from tightship.process.starting import start


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    start("tightship_cli.cli")


if __name__ == "__main__":
    main()

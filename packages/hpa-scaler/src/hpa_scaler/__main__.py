"""The program ``hpa-scaler``; also ``python -m hpa_scaler``."""

from __future__ import annotations

from tightship.process.starting import start


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    start("hpa_scaler.cli")


if __name__ == "__main__":
    main()

"""An annex: the plans of several clusters side by side."""

from tightship_cli.fleet.command import add_fleet as add_fleet

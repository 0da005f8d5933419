"""An annex: what in a cluster or in manifests will block drains and floors, without a plan."""

from tightship_cli.lint.command import add_lint as add_lint

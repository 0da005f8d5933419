"""An annex: what the commands show, as read-only tools of the Model Context Protocol over stdio."""

from tightship_cli.mcp.command import add_mcp as add_mcp

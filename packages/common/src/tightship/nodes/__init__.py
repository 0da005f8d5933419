"""The shared parts of both controllers of nodes."""

"""The shared parts of all controllers' commands: arguments, exit codes, progress, the source of a cluster."""

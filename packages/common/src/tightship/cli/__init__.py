"""Commands: arguments, exit codes, progress, the source of a cluster, and clusters from files."""

"""Clusters from files: the output of kubectl, JSON or YAML, plain or compressed."""

"""Clusters from files: what kubectl prints, JSON or YAML, plain or packed."""

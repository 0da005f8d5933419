"""Drains carried out: claims, patches, evictions, tasks."""

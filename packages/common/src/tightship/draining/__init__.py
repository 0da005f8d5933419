"""Carries drains out: claims, patches, evictions, tasks."""

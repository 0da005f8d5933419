"""Bounds, Events and notes, written to the API server."""

"""Writes bounds, Events and notes to the API server."""

"""Runs a controller: its process, its loop, its pages. Import the modules themselves."""

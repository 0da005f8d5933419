"""The process and its commands."""

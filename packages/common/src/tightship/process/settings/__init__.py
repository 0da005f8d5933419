"""A controller's settings: flags and environment once, its ConfigMap live. Import the modules themselves."""
